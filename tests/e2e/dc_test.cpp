// The DC transport: initiators, targets and what passes between them.
#include "rig.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <tuple>

namespace {

constexpr std::size_t size = 4096;
constexpr std::uint64_t key = 0x1122334455667788;

using Srq = Owned<ibv_srq, ibv_destroy_srq>;
using Ah = Owned<ibv_ah, ibv_destroy_ah>;
using Dct = Owned<ibv_exp_dct, ibv_exp_destroy_dct>;

struct Dc : Rig {
  ibv_port_attr port{};
  Srq srq = make_srq();
  Buffer out{pd.get(), size}, in{pd.get(), size};
  Ah ah = make_ah();

  Dc() {
    std::iota(out.bytes.begin(), out.bytes.end(), std::uint8_t{1});
    std::ranges::fill(in.bytes, 0);
  }

  bool ethernet() const { return port.link_layer == IBV_LINK_LAYER_ETHERNET; }

  Srq make_srq() {
    REQUIRE(ibv_query_port(context.get(), 1, &port) == 0);
    ibv_srq_init_attr attr{};
    attr.attr.max_wr = 64;
    attr.attr.max_sge = 1;
    Srq made(ibv_create_srq(pd.get(), &attr));
    REQUIRE(made);
    return made;
  }
  Ah make_ah() {
    ibv_ah_attr attr{};
    attr.port_num = 1;
    attr.dlid = port.lid;
    if (ethernet()) {
      attr.is_global = 1;
      attr.grh.sgid_index = 1;
      attr.grh.hop_limit = 1;
      REQUIRE(ibv_query_gid(context.get(), 1, 1, &attr.grh.dgid) == 0);
    }
    Ah made(ibv_create_ah(pd.get(), &attr));
    REQUIRE(made);
    return made;
  }

  ibv_exp_dct_init_attr dct_attr() {
    ibv_exp_dct_init_attr attr{};
    attr.pd = pd.get();
    attr.cq = cq.get();
    attr.srq = srq.get();
    attr.dc_key = key;
    attr.port = 1;
    attr.access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    attr.min_rnr_timer = 2;
    attr.mtu = IBV_MTU_1024;
    // As real programs leave it where there is no GID to name.
    attr.gid_index = ethernet() ? 1 : 255;
    attr.hop_limit = ethernet() ? 1 : 0;
    attr.inline_size = 60;
    return attr;
  }
  Dct make_dct() {
    auto attr = dct_attr();
    Dct made(ibv_exp_create_dct(context.get(), &attr));
    REQUIRE(made);
    return made;
  }

  Qp make_dci(std::uint32_t depth = 16, bool base = false) {
    auto attr = qp_attr(static_cast<ibv_qp_type>(IBV_EXP_QPT_DC_INI));
    // What an initiator has no use for is filled in by real programs.
    attr.cap = {depth, 512, 2, 1, 64};
    attr.srq = srq.get();
    if (base) attr.comp_mask = IBV_EXP_QP_INIT_ATTR_PD;
    Qp made(ibv_exp_create_qp(context.get(), &attr));
    REQUIRE(made);
    CHECK(attr.cap.max_send_wr >= depth);
    CHECK(attr.cap.max_recv_wr == 0);
    granted = attr.cap.max_send_wr;
    to_rts(made.get());
    return made;
  }
  std::uint32_t granted = 0;

  void to_rts(ibv_qp *dci) {
    ibv_exp_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.dct_key = key;
    REQUIRE(ibv_exp_modify_qp(dci, &attr,
                              IBV_EXP_QP_STATE | IBV_EXP_QP_PKEY_INDEX | IBV_EXP_QP_PORT |
                                  IBV_EXP_QP_DC_KEY) == 0);
    attr = {};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.dlid = port.lid;
    attr.ah_attr.is_global = ethernet();
    attr.ah_attr.grh.sgid_index = ethernet() ? 1 : 0;
    REQUIRE(ibv_exp_modify_qp(dci, &attr,
                              IBV_EXP_QP_STATE | IBV_EXP_QP_PATH_MTU | IBV_EXP_QP_AV) == 0);
    attr = {};
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = attr.rnr_retry = 7;
    attr.max_rd_atomic = 4;
    REQUIRE(ibv_exp_modify_qp(dci, &attr,
                              IBV_EXP_QP_STATE | IBV_EXP_QP_TIMEOUT | IBV_EXP_QP_RETRY_CNT |
                                  IBV_EXP_QP_RNR_RETRY | IBV_EXP_QP_MAX_QP_RD_ATOMIC) == 0);
  }

  ibv_exp_send_wr to(const ibv_exp_dct *dct, ibv_exp_wr_opcode opcode, std::uint64_t id,
                     ibv_sge *pieces) {
    auto wr = request(id, opcode, pieces);
    wr.dc.ah = ah.get();
    wr.dc.dct_number = dct->dct_num;
    wr.dc.dct_access_key = key;
    return wr;
  }
  void aim(ibv_exp_send_wr &wr, std::size_t offset = 0) {
    wr.wr.rdma.remote_addr = in.address(offset);
    wr.wr.rdma.rkey = in.mr->rkey;
  }
  void post(ibv_qp *dci, ibv_exp_send_wr &wr) {
    ibv_exp_send_wr *bad = nullptr;
    REQUIRE(ibv_exp_post_send(dci, &wr, &bad) == 0);
  }
  void receive(std::uint64_t id, std::size_t offset = 0, std::uint32_t length = size) {
    ibv_sge piece = in.piece(offset, length);
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.wr_id = id;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    REQUIRE(ibv_post_srq_recv(srq.get(), &wr, &bad) == 0);
  }
  ibv_exp_wc take() {
    ibv_exp_wc wc{};
    int count = 0;
    for (int turns = 0; count == 0 && turns < 50'000'000; ++turns)
      count = ibv_exp_poll_cq(cq.get(), 1, &wc, sizeof(wc));
    REQUIRE(count == 1);
    return wc;
  }
};

}  // namespace

TEST_CASE("the device shows what DC it has [row:IBV_EXP_DEVICE_DC_TRANSPORT]") {
  Rig rig;
  ibv_exp_device_attr attr{};
  attr.comp_mask = IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS | IBV_EXP_DEVICE_ATTR_MAX_DCT;
  REQUIRE(ibv_exp_query_device(rig.context.get(), &attr) == 0);
  CHECK((attr.comp_mask & IBV_EXP_DEVICE_ATTR_MAX_DCT) != 0);
  CHECK((attr.exp_device_cap_flags & IBV_EXP_DEVICE_DC_TRANSPORT) != 0);
  CHECK((attr.exp_device_cap_flags & IBV_EXP_DEVICE_DC_INFO) == 0);
  CHECK(attr.max_dct > 0);
}

TEST_CASE("sends reach a target and say which one [row:ibv_exp_create_dct] [row:IBV_EXP_WC_DCT]") {
  Dc dc;
  const Dct first = dc.make_dct(), second = dc.make_dct();
  const bool base = GENERATE(false, true);
  const Qp dci = dc.make_dci(16, base);
  CHECK(first->dct_num != second->dct_num);
  CHECK(first->context == dc.context.get());
  CHECK(first->srq == dc.srq.get());
  for (const ibv_exp_dct *target : {first.get(), second.get(), first.get()}) {
    dc.receive(7);
    auto piece = dc.out.piece(0, 1000);
    auto wr = dc.to(target, IBV_EXP_WR_SEND_WITH_IMM, 1, &piece);
    wr.ex.imm_data = 0x01020304;
    dc.post(dci.get(), wr);
    auto all = dc.completions(2);
    if (all[0].exp_opcode >= IBV_EXP_WC_RECV) std::swap(all[0], all[1]);
    const auto &[sent, got] = std::tie(all[0], all[1]);
    CHECK(sent.status == IBV_WC_SUCCESS);
    CHECK(sent.exp_opcode == IBV_EXP_WC_SEND);
    CHECK(sent.wr_id == 1);
    CHECK(sent.qp == dci.get());
    CHECK(got.status == IBV_WC_SUCCESS);
    CHECK(got.exp_opcode == IBV_EXP_WC_RECV);
    CHECK(got.wr_id == 7);
    CHECK(got.byte_len == 1000);
    CHECK(got.imm_data == 0x01020304);
    CHECK(got.qp_num == target->dct_num);
    CHECK(got.dct == target);
    CHECK(got.srq == dc.srq.get());
    CHECK((got.exp_wc_flags & IBV_EXP_WC_DCT) != 0);
    CHECK((got.exp_wc_flags & IBV_EXP_WC_SRQ) != 0);
    CHECK((got.exp_wc_flags & IBV_EXP_WC_QP) == 0);
    CHECK(std::equal(dc.in.bytes.begin(), dc.in.bytes.begin() + 1000, dc.out.bytes.begin()));
    std::ranges::fill(dc.in.bytes, 0);
  }
}

TEST_CASE("remote memory is reached over DC [row:ibv_exp_send_wr.dc]") {
  Dc dc;
  const Dct dct = dc.make_dct();
  const Qp dci = dc.make_dci();
  auto piece = dc.out.piece(0, size);
  SECTION("write") {
    auto wr = dc.to(dct.get(), IBV_EXP_WR_RDMA_WRITE, 1, &piece);
    dc.aim(wr);
    dc.post(dci.get(), wr);
    CHECK(dc.take().exp_opcode == IBV_EXP_WC_RDMA_WRITE);
    CHECK(dc.in.bytes == dc.out.bytes);
  }
  SECTION("inline, in pieces") {
    ibv_sge pieces[2] = {dc.out.piece(0, 30), dc.out.piece(30, 34)};
    auto wr = dc.to(dct.get(), IBV_EXP_WR_RDMA_WRITE, 1, pieces);
    wr.num_sge = 2;
    wr.exp_send_flags |= IBV_EXP_SEND_INLINE;
    dc.aim(wr);
    dc.post(dci.get(), wr);
    CHECK(dc.take().status == IBV_WC_SUCCESS);
    CHECK(std::equal(dc.in.bytes.begin(), dc.in.bytes.begin() + 64, dc.out.bytes.begin()));
  }
  SECTION("write with immediate data") {
    dc.receive(7, 0, 0);
    auto wr = dc.to(dct.get(), IBV_EXP_WR_RDMA_WRITE_WITH_IMM, 1, &piece);
    wr.ex.imm_data = 9;
    dc.aim(wr);
    dc.post(dci.get(), wr);
    auto all = dc.completions(2);
    const auto &got = all[all[0].exp_opcode >= IBV_EXP_WC_RECV ? 0 : 1];
    CHECK(got.exp_opcode == IBV_EXP_WC_RECV_RDMA_WITH_IMM);
    CHECK(got.imm_data == 9);
    CHECK(got.dct == dct.get());
    CHECK(dc.in.bytes == dc.out.bytes);
  }
  SECTION("read") {
    auto into = dc.in.piece(0, size);
    auto wr = dc.to(dct.get(), IBV_EXP_WR_RDMA_READ, 1, &into);
    wr.wr.rdma.remote_addr = dc.out.address();
    wr.wr.rdma.rkey = dc.out.mr->rkey;
    dc.post(dci.get(), wr);
    const auto wc = dc.take();
    CHECK(wc.exp_opcode == IBV_EXP_WC_RDMA_READ);
    CHECK(wc.byte_len == size);
    CHECK(dc.in.bytes == dc.out.bytes);
  }
  SECTION("fetch and add") {
    const std::uint64_t old = 40;
    const std::size_t offset = 64 - dc.in.address() % 8;
    std::memcpy(dc.in.bytes.data() + offset, &old, 8);
    piece.length = 8;
    auto wr = dc.to(dct.get(), IBV_EXP_WR_ATOMIC_FETCH_AND_ADD, 1, &piece);
    wr.wr.atomic.remote_addr = dc.in.address(offset);
    wr.wr.atomic.rkey = dc.in.mr->rkey;
    wr.wr.atomic.compare_add = 2;
    dc.post(dci.get(), wr);
    CHECK(dc.take().exp_opcode == IBV_EXP_WC_FETCH_ADD);
    std::uint64_t now, answer;
    std::memcpy(&now, dc.in.bytes.data() + offset, 8);
    std::memcpy(&answer, dc.out.bytes.data(), 8);
    CHECK(now == 42);
    CHECK(answer == 40);
  }
}

TEST_CASE("a chain goes to many targets, and a full queue to the next try "
          "[row:ibv_exp_post_send]") {
  Dc dc;
  std::vector<Dct> targets;
  for (int i = 0; i < 8; ++i) targets.push_back(dc.make_dct());
  const Qp dci = dc.make_dci(GENERATE(1u, 4u, 30u));
  std::minstd_rand random(7);
  constexpr int total = 400;
  std::vector<ibv_exp_send_wr> chain(total);
  std::vector<ibv_sge> pieces(total);
  std::vector<std::uint64_t> signaled;
  std::uint32_t silent = 0;
  for (int i = 0; i < total; ++i) {
    pieces[i] = dc.out.piece(static_cast<std::size_t>(i), 1 + random() % 60);
    chain[i] = dc.to(targets[random() % 8].get(), IBV_EXP_WR_RDMA_WRITE,
                     static_cast<std::uint64_t>(i % 3), &pieces[i]);
    dc.aim(chain[i], static_cast<std::size_t>(i) * 8);
    if (random() % 2 == 0) chain[i].exp_send_flags |= IBV_EXP_SEND_INLINE;
    const bool signal = ++silent == dc.granted || random() % 3 == 0 || i == total - 1;
    if (signal)
      silent = 0;
    else
      chain[i].exp_send_flags &= ~std::uint64_t{IBV_EXP_SEND_SIGNALED};
    if (signal) signaled.push_back(chain[i].wr_id);
    chain[i].next = i + 1 < total ? &chain[i + 1] : nullptr;
  }
  std::size_t completed = 0;
  const auto complete = [&] {
    const auto wc = dc.take();
    REQUIRE(wc.status == IBV_WC_SUCCESS);
    REQUIRE(completed < signaled.size());
    CHECK(wc.wr_id == signaled[completed++]);
  };
  std::vector<std::uint8_t> expected(size, 0);
  ibv_exp_send_wr *next = chain.data();
  while (next != nullptr) {
    ibv_exp_send_wr *bad = nullptr;
    const int error = ibv_exp_post_send(dci.get(), next, &bad);
    if (error == 0) break;
    REQUIRE(error == ENOMEM);
    REQUIRE(bad != nullptr);
    next = bad;
    complete();
  }
  while (completed < signaled.size()) complete();
  for (int i = 0; i < total; ++i)
    std::copy_n(dc.out.bytes.begin() + i, pieces[i].length, expected.begin() + i * 8);
  CHECK(dc.in.bytes == expected);
}

TEST_CASE("a wrong key is an error of the initiator, which recovers [row:ibv_exp_modify_qp]") {
  Dc dc;
  const Dct dct = dc.make_dct();
  const Qp dci = dc.make_dci();
  auto piece = dc.out.piece(0, 100);
  auto wr = dc.to(dct.get(), IBV_EXP_WR_RDMA_WRITE, 1, &piece);
  dc.aim(wr);
  wr.dc.dct_access_key = key + 1;
  dc.post(dci.get(), wr);
  const auto wc = dc.take();
  CHECK(wc.status == IBV_WC_RETRY_EXC_ERR);
  CHECK(wc.wr_id == 1);
  CHECK(wc.qp_num == dci->qp_num);
  CHECK(dc.in.bytes[0] == 0);

  ibv_exp_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  REQUIRE(ibv_exp_modify_qp(dci.get(), &attr, IBV_EXP_QP_STATE) == 0);
  dc.to_rts(dci.get());
  wr.dc.dct_access_key = key;
  dc.post(dci.get(), wr);
  CHECK(dc.take().status == IBV_WC_SUCCESS);
}

TEST_CASE("a target answers what it is [row:ibv_exp_query_dct]") {
  Dc dc;
  auto init = dc.dct_attr();
  init.tclass = 3;
  init.flow_label = 5;
  const Dct dct(ibv_exp_create_dct(dc.context.get(), &init));
  REQUIRE(dct);
  CHECK(init.inline_size == 0);
  ibv_exp_dct_attr attr{};
  REQUIRE(ibv_exp_query_dct(dct.get(), &attr) == 0);
  CHECK(attr.dc_key == key);
  CHECK(attr.port == 1);
  CHECK(attr.access_flags == init.access_flags);
  CHECK(attr.min_rnr_timer == 2);
  CHECK(attr.mtu == IBV_MTU_1024);
  CHECK(attr.tclass == 3);
  CHECK(attr.flow_label == 5);
  CHECK(attr.state == IBV_EXP_DCT_STATE_ACTIVE);
  CHECK(attr.key_violations == 0);
  CHECK(attr.srq == dc.srq.get());
  CHECK(attr.cq == dc.cq.get());
  CHECK(attr.pd == dc.pd.get());
}

TEST_CASE("targets that cannot be had are refused [row:ibv_exp_create_dct]") {
  Dc dc;
  auto attr = dc.dct_attr();
  SECTION("no SRQ") { attr.srq = nullptr; }
  SECTION("no CQ") { attr.cq = nullptr; }
  SECTION("no protection domain") { attr.pd = nullptr; }
  SECTION("no such port") { attr.port = 9; }
  SECTION("no such MTU") { attr.mtu = static_cast<ibv_mtu>(9); }
  SECTION("unknown flag") { attr.create_flags = 1u << 5; }
  CHECK(ibv_exp_create_dct(dc.context.get(), &attr) == nullptr);
  CHECK(errno == EINVAL);
}

TEST_CASE("a target is not armed, and goes once [row:ibv_exp_arm_dct]") {
  Dc dc;
  Dct dct = dc.make_dct();
  ibv_exp_arm_attr arm{};
  CHECK(ibv_exp_arm_dct(dct.get(), &arm) == ENOTSUP);
  ibv_exp_dc_info_ent info;
  CHECK(ibv_exp_poll_dc_info(dc.context.get(), &info, 1, 1) == -1);
}

TEST_CASE("the base verb cannot address a target [row:ibv_exp_post_send]") {
  Dc dc;
  const Dct dct = dc.make_dct();
  const Qp dci = dc.make_dci();
  auto piece = dc.out.piece(0, 100);
  ibv_send_wr wr{}, *bad = nullptr;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  CHECK(ibv_post_send(dci.get(), &wr, &bad) == EINVAL);
  CHECK(bad == &wr);
  // Nothing of it is in the queue.
  auto good = dc.to(dct.get(), IBV_EXP_WR_RDMA_WRITE, 1, &piece);
  dc.aim(good);
  dc.post(dci.get(), good);
  CHECK(dc.take().status == IBV_WC_SUCCESS);
}

TEST_CASE("bad requests on an initiator leave the good ones before them "
          "[row:ibv_exp_post_send]") {
  Dc dc;
  const Dct dct = dc.make_dct();
  const Qp dci = dc.make_dci();
  auto piece = dc.out.piece(0, 100);
  auto good = dc.to(dct.get(), IBV_EXP_WR_RDMA_WRITE, 1, &piece);
  dc.aim(good);
  auto wrong = good;
  good.next = &wrong;
  int reason = EINVAL;
  std::vector<ibv_sge> many(200, piece);
  SECTION("no destination") { wrong.dc.ah = nullptr; }
  SECTION("unknown opcode") { wrong.exp_opcode = static_cast<ibv_exp_wr_opcode>(0x33); }
  SECTION("too many pieces") {
    wrong.sg_list = many.data();
    wrong.num_sge = 200;
    reason = ENOMEM;
  }
  SECTION("too much inline") {
    piece.length = size;
    wrong.exp_send_flags |= IBV_EXP_SEND_INLINE;
    reason = ENOMEM;
  }
  ibv_exp_send_wr *bad = nullptr;
  CHECK(ibv_exp_post_send(dci.get(), &good, &bad) == reason);
  CHECK(bad == &wrong);
  const auto wc = dc.take();
  CHECK(wc.status == IBV_WC_SUCCESS);
  CHECK(wc.wr_id == 1);
}

TEST_CASE("an unready initiator takes nothing [row:ibv_exp_post_send]") {
  Dc dc;
  const Dct dct = dc.make_dct();
  auto attr = dc.qp_attr(static_cast<ibv_qp_type>(IBV_EXP_QPT_DC_INI));
  const Qp dci(ibv_exp_create_qp(dc.context.get(), &attr));
  REQUIRE(dci);
  auto piece = dc.out.piece(0, 100);
  auto wr = dc.to(dct.get(), IBV_EXP_WR_RDMA_WRITE, 1, &piece);
  dc.aim(wr);
  ibv_exp_send_wr *bad = nullptr;
  for (int i = 0; i < 200; ++i) CHECK(ibv_exp_post_send(dci.get(), &wr, &bad) == EINVAL);
  CHECK(bad == &wr);
  dc.to_rts(dci.get());
  dc.post(dci.get(), wr);
  CHECK(dc.take().status == IBV_WC_SUCCESS);
}

TEST_CASE("a DC key belongs to initiators [row:IBV_EXP_QP_DC_KEY]") {
  Rig rig;
  const Qp rc = rig.create_qp(IBV_QPT_RC);
  ibv_exp_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  CHECK(ibv_exp_modify_qp(rc.get(), &attr,
                          IBV_EXP_QP_STATE | IBV_EXP_QP_PKEY_INDEX | IBV_EXP_QP_PORT |
                              IBV_EXP_QP_ACCESS_FLAGS | IBV_EXP_QP_DC_KEY) == EINVAL);
}

TEST_CASE("masked atomics are refused on initiators by default "
          "[row:IBV_EXP_WR_EXT_MASKED_ATOMIC_FETCH_AND_ADD]") {
  Dc dc;
  const Dct dct = dc.make_dct();
  const Qp dci = dc.make_dci();
  auto piece = dc.out.piece(0, 8);
  auto wr = dc.to(dct.get(), IBV_EXP_WR_EXT_MASKED_ATOMIC_FETCH_AND_ADD, 1, &piece);
  ibv_exp_send_wr *bad = nullptr;
  CHECK(ibv_exp_post_send(dci.get(), &wr, &bad) == ENOTSUP);
  CHECK(bad == &wr);
}
