// The DC transport: initiators, targets and what passes between them.
#include <fcntl.h>
#include <infiniband/mlx5dv.h>

#include <random>
#include <tuple>

#include "dc_rig.h"
#include "skip.h"

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
  auto piece = dc.out.piece(0, Dc::size);
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
    auto into = dc.in.piece(0, Dc::size);
    auto wr = dc.to(dct.get(), IBV_EXP_WR_RDMA_READ, 1, &into);
    wr.wr.rdma.remote_addr = dc.out.address();
    wr.wr.rdma.rkey = dc.out.mr->rkey;
    dc.post(dci.get(), wr);
    const auto wc = dc.take();
    CHECK(wc.exp_opcode == IBV_EXP_WC_RDMA_READ);
    CHECK(wc.byte_len == Dc::size);
    CHECK(dc.in.bytes == dc.out.bytes);
  }
  SECTION("fetch and add") {
    const std::uint64_t old = 40;
    const std::size_t offset = 64 - dc.in.address() % 8;
    std::memcpy(dc.in.bytes.data() + offset, &old, 8);
    piece.length = GENERATE(8u, 16u);  // the answer has 8 bytes either way
    const std::uint8_t behind = dc.out.bytes[8];
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
    CHECK(dc.out.bytes[8] == behind);
  }
}

TEST_CASE(
    "a chain goes to many targets, and a full queue to the next try "
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
    if (signal) silent = 0;
    else chain[i].exp_send_flags &= ~std::uint64_t{IBV_EXP_SEND_SIGNALED};
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
  std::vector<std::uint8_t> expected(Dc::size, 0);
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

TEST_CASE(
    "a target answers what it is [row:ibv_exp_query_dct] [row:dc_query_dct_access_flags] "
    "[row:dc_query_dct_dc_key] [row:dc_query_dct_flow_label] [row:dc_query_dct_gid_index] "
    "[row:dc_query_dct_hop_limit] [row:dc_query_dct_key_violations] "
    "[row:dc_query_dct_min_rnr_timer] [row:dc_query_dct_mtu] [row:dc_query_dct_pkey_index] "
    "[row:dc_query_dct_port] [row:dc_query_dct_state] [row:dc_query_dct_tclass] "
    "[row:dc_create_dct_access_flags] [row:dc_create_dct_dc_key] "
    "[row:dc_create_dct_flow_label] [row:dc_create_dct_inline_size]") {
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
  CHECK(attr.pkey_index == 0);
  CHECK(attr.gid_index == (dc.ethernet() ? 1 : 0));
  CHECK(attr.hop_limit == init.hop_limit);
  CHECK(attr.state == IBV_EXP_DCT_STATE_ACTIVE);
  CHECK(attr.key_violations == 0);
  CHECK(attr.srq == dc.srq.get());
  CHECK(attr.cq == dc.cq.get());
  CHECK(attr.pd == dc.pd.get());
}

TEST_CASE("payloads come inline where entries have 128 bytes [row:dc_create_dct_inline_size]") {
  Dc dc;
  const auto [bytes, granted] = GENERATE(std::pair("64", 0u), std::pair("128", 64u));
  REQUIRE(ibv_exp_setenv(dc.context.get(), "MLX5_CQE_SIZE", bytes, 1) == 0);
  ibv_exp_cq_init_attr plain_cq{};
  const Cq cq(ibv_exp_create_cq(dc.context.get(), 16, nullptr, nullptr, 0, &plain_cq));
  REQUIRE(cq);
  auto attr = dc.dct_attr();
  attr.cq = cq.get();
  const Dct asked(ibv_exp_create_dct(dc.context.get(), &attr));
  REQUIRE(asked);
  CHECK(attr.inline_size == granted);
  attr.inline_size = 0;
  const Dct plain(ibv_exp_create_dct(dc.context.get(), &attr));
  REQUIRE(plain);
  CHECK(attr.inline_size == 0);
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
  const Rig elsewhere;
  SECTION("protection domain of another context") { attr.pd = elsewhere.pd.get(); }
  SECTION("CQ of another context") { attr.cq = elsewhere.cq.get(); }
  CHECK(ibv_exp_create_dct(dc.context.get(), &attr) == nullptr);
  CHECK(errno == EINVAL);
}

TEST_CASE("a target on a destroyed CQ is refused [row:ibv_exp_create_dct]", "[engine]") {
  Dc dc;
  auto attr = dc.dct_attr();
  attr.cq = ibv_create_cq(dc.context.get(), 4, nullptr, nullptr, 0);
  REQUIRE(attr.cq != nullptr);
  REQUIRE(ibv_destroy_cq(attr.cq) == 0);
  CHECK(ibv_exp_create_dct(dc.context.get(), &attr) == nullptr);
  CHECK(errno == EINVAL);
}

TEST_CASE("a target takes every MTU [row:ibv_exp_create_dct]") {
  Dc dc;
  auto attr = dc.dct_attr();
  for (int mtu = IBV_MTU_256; mtu <= IBV_MTU_4096; ++mtu) {
    attr.mtu = static_cast<ibv_mtu>(mtu);
    const Dct dct(ibv_exp_create_dct(dc.context.get(), &attr));
    CHECK(dct);
  }
}

// Completions of an initiator get their opcode from what was posted.
TEST_CASE("a reset takes requests away [row:IBV_EXP_QP_STATE]") {
  Dc dc;
  const Dct dct = dc.make_dct();
  const Qp dci = dc.make_dci();
  auto piece = dc.out.piece(0, 100);
  for (const auto opcode : {IBV_EXP_WR_RDMA_WRITE, IBV_EXP_WR_RDMA_READ}) {
    auto wr = dc.to(dct.get(), opcode, 5, &piece);
    dc.aim(wr);
    dc.post(dci.get(), wr);
    if (opcode == IBV_EXP_WR_RDMA_READ) break;
    // The queue is full.
    wr.exp_send_flags = 0;
    for (std::uint32_t i = 1; i < dc.granted; ++i) dc.post(dci.get(), wr);
    ibv_exp_qp_attr attr{};
    attr.qp_state = IBV_QPS_RESET;
    REQUIRE(ibv_exp_modify_qp(dci.get(), &attr, IBV_EXP_QP_STATE) == 0);
    dc.to_rts(dci.get());
  }
  const auto wc = dc.take();
  CHECK(wc.status == IBV_WC_SUCCESS);
  CHECK(wc.wr_id == 5);
  CHECK(wc.exp_opcode == IBV_EXP_WC_RDMA_READ);
}

// [row:ibv_exp_destroy_dct]
TEST_CASE("a target is not armed by default, and goes once [row:ibv_exp_arm_dct]") {
  Dc dc;
  Dct dct = dc.make_dct();
  ibv_exp_arm_attr arm{};
  if (!switched_on("key_violations")) CHECK(ibv_exp_arm_dct(dct.get(), &arm) == ENOTSUP);
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

TEST_CASE(
    "bad requests on an initiator leave the good ones before them "
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
  SECTION("unknown opcode") { wrong.exp_opcode = static_cast<ibv_exp_wr_opcode>(0x7f); }
  SECTION("too many pieces") {
    wrong.sg_list = many.data();
    wrong.num_sge = 200;
    reason = ENOMEM;
  }
  SECTION("too much inline") {
    piece.length = Dc::size;
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

TEST_CASE("a DC key belongs to initiators [row:IBV_EXP_QP_DC_KEY] [row:dc_modify_qp_dct_key]") {
  Rig rig;
  const Qp rc = rig.create_qp(IBV_QPT_RC);
  ibv_exp_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  CHECK(ibv_exp_modify_qp(rc.get(), &attr,
                          IBV_EXP_QP_STATE | IBV_EXP_QP_PKEY_INDEX | IBV_EXP_QP_PORT |
                              IBV_EXP_QP_ACCESS_FLAGS | IBV_EXP_QP_DC_KEY) == EINVAL);
}

TEST_CASE(
    "masked atomics are refused on initiators by default "
    "[row:IBV_EXP_WR_EXT_MASKED_ATOMIC_FETCH_AND_ADD]") {
  SKIP_IF(switched_on("masked_atomics"), "they are served");
  Dc dc;
  const Dct dct = dc.make_dct();
  const Qp dci = dc.make_dci();
  auto piece = dc.out.piece(0, 8);
  auto wr = dc.to(dct.get(), IBV_EXP_WR_EXT_MASKED_ATOMIC_FETCH_AND_ADD, 1, &piece);
  ibv_exp_send_wr *bad = nullptr;
  CHECK(ibv_exp_post_send(dci.get(), &wr, &bad) == ENOTSUP);
  CHECK(bad == &wr);
}

TEST_CASE("a target may place data out of order [row:IBV_EXP_DCT_OOO_RW_DATA_PLACEMENT]") {
  Dc dc;
  auto attr = dc.dct_attr();
  attr.create_flags = IBV_EXP_DCT_OOO_RW_DATA_PLACEMENT;
  const Dct dct(ibv_exp_create_dct(dc.context.get(), &attr));
  REQUIRE(dct);
  const Qp dci = dc.make_dci();
  auto piece = dc.out.piece(0, Dc::size);
  auto wr = dc.to(dct.get(), IBV_EXP_WR_RDMA_WRITE, 1, &piece);
  dc.aim(wr);
  dc.post(dci.get(), wr);
  CHECK(dc.take().status == IBV_WC_SUCCESS);
  CHECK(dc.in.bytes == dc.out.bytes);
}

TEST_CASE("pages come on demand over DC too [row:dcodp_enable] [row:dcodp_query]") {
  Dc dc;
  ibv_exp_device_attr device{};
  device.comp_mask = IBV_EXP_DEVICE_ATTR_ODP;
  REQUIRE(ibv_exp_query_device(dc.context.get(), &device) == 0);
  mlx5dv_context modern{};
  modern.comp_mask = MLX5DV_CONTEXT_MASK_DC_ODP_CAPS;
  REQUIRE(mlx5dv_query_device(dc.context.get(), &modern) == 0);
  CHECK(device.odp_caps.per_transport_caps.dc_odp_caps ==
        ((modern.comp_mask & MLX5DV_CONTEXT_MASK_DC_ODP_CAPS) != 0 ? modern.dc_odp_caps : 0));

  ibv_exp_reg_mr_in in{};
  in.pd = dc.pd.get();
  in.addr = dc.in.bytes.data();
  in.length = Dc::size;
  in.exp_access = IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_REMOTE_WRITE |
                  IBV_EXP_ACCESS_REMOTE_READ | IBV_EXP_ACCESS_ON_DEMAND;
  const Mr demanded(ibv_exp_reg_mr(&in));
  REQUIRE(demanded);
  const Dct dct = dc.make_dct();
  const Qp dci = dc.make_dci();
  auto piece = dc.out.piece(0, Dc::size);
  auto wr = dc.to(dct.get(), IBV_EXP_WR_RDMA_WRITE, 1, &piece);
  dc.aim(wr);
  wr.wr.rdma.rkey = demanded->rkey;
  dc.post(dci.get(), wr);
  CHECK(dc.take().status == IBV_WC_SUCCESS);
  CHECK(dc.in.bytes == dc.out.bytes);
  // And as the place of an answer.
  std::ranges::fill(dc.in.bytes, 0);
  ibv_sge into{dc.in.address(), Dc::size, demanded->lkey};
  auto read = dc.to(dct.get(), IBV_EXP_WR_RDMA_READ, 2, &into);
  read.wr.rdma.remote_addr = dc.out.address();
  read.wr.rdma.rkey = dc.out.mr->rkey;
  dc.post(dci.get(), read);
  CHECK(dc.take().status == IBV_WC_SUCCESS);
  CHECK(dc.in.bytes == dc.out.bytes);
}

TEST_CASE(
    "as many reads as reported are under way [row:dcatomic_query_req] [row:dcatomic_query_res]") {
  Dc dc;
  ibv_exp_device_attr device{};
  device.comp_mask = IBV_EXP_DEVICE_DC_RD_REQ | IBV_EXP_DEVICE_DC_RD_RES;
  REQUIRE(ibv_exp_query_device(dc.context.get(), &device) == 0);
  // rdma-core before v47 cannot be asked.
  if ((device.comp_mask & IBV_EXP_DEVICE_DC_RD_REQ) == 0) CHECK(device.max_dc_req_rd_atom == 0);
  if ((device.comp_mask & IBV_EXP_DEVICE_DC_RD_RES) == 0) CHECK(device.max_dc_res_rd_atom == 0);
  // They go in any case.
  const Dct dct = dc.make_dct();
  const Qp dci = dc.make_dci(64);
  std::vector<ibv_sge> into(32);
  for (std::size_t i = 0; i < into.size(); ++i) {
    into[i] = dc.in.piece(i * 128, 128);
    auto wr = dc.to(dct.get(), IBV_EXP_WR_RDMA_READ, i, &into[i]);
    wr.wr.rdma.remote_addr = dc.out.address(i * 128);
    wr.wr.rdma.rkey = dc.out.mr->rkey;
    dc.post(dci.get(), wr);
  }
  for (std::size_t i = 0; i < into.size(); ++i) {
    const auto wc = dc.take();
    CHECK(wc.status == IBV_WC_SUCCESS);
    CHECK(wc.wr_id == i);
  }
  CHECK(dc.in.bytes == dc.out.bytes);
}

TEST_CASE(
    "an error of the target drains it [row:IBV_EXP_DCT_STATE_DRAINED] "
    "[row:IBV_EXP_DCT_STATE_DRAINING] [row:event_dct_key_violation] "
    "[row:event_dct_req_err]") {
  Dc dc;
  const Dct dct = dc.make_dct();
  const Qp dci = dc.make_dci();
  auto piece = dc.out.piece(0, 100);
  auto wr = dc.to(dct.get(), IBV_EXP_WR_RDMA_WRITE, 1, &piece);
  dc.aim(wr);
  SECTION("a wrong key") { wr.dc.dct_access_key = key + 1; }
  SECTION("memory that is not there") { wr.wr.rdma.rkey ^= 0x5500; }
  dc.post(dci.get(), wr);
  CHECK(dc.take().status != IBV_WC_SUCCESS);
  // Targets serve many: a bad request changes none of them, and no event of a
  // target is delivered.
  ibv_exp_dct_attr attr{};
  REQUIRE(ibv_exp_query_dct(dct.get(), &attr) == 0);
  CHECK(attr.state == IBV_EXP_DCT_STATE_ACTIVE);
  if (!switched_on("key_violations")) CHECK(attr.key_violations == 0);
  const int flags = fcntl(dc.context->async_fd, F_GETFL);
  REQUIRE(fcntl(dc.context->async_fd, F_SETFL, flags | O_NONBLOCK) == 0);
  ibv_async_event event{};
  while (ibv_get_async_event(dc.context.get(), &event) == 0) {
    CHECK((event.event_type == IBV_EVENT_QP_FATAL || event.event_type == IBV_EVENT_QP_ACCESS_ERR ||
           event.event_type == IBV_EVENT_QP_REQ_ERR));
    CHECK(event.element.qp == dci.get());
    ibv_ack_async_event(&event);
  }
}

// Where the configuration makes every creation fail.
TEST_CASE("what a device can do is asked, not tried [row:ibv_exp_query_device]",
          "[no-new-objects][engine]") {
  const Context context = open_first();
  ibv_exp_device_attr attr{};
  attr.comp_mask =
      IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS | IBV_EXP_DEVICE_ATTR_MAX_DCT | IBV_EXP_DEVICE_ATTR_UMR;
  REQUIRE(ibv_exp_query_device(context.get(), &attr) == 0);
  CHECK((attr.exp_device_cap_flags & IBV_EXP_DEVICE_DC_TRANSPORT) != 0);
  CHECK((attr.exp_device_cap_flags & IBV_EXP_DEVICE_UMR) != 0);
  CHECK(attr.max_dct != 0);
  CHECK(attr.umr_caps.max_klm_list_size != 0);
}

// Where the kernel takes no command that asks for capabilities.
TEST_CASE("what a device can do shows where it makes it [row:ibv_exp_query_device]",
          "[no-queries][engine]") {
  Rig rig;
  ibv_exp_device_attr attr{};
  attr.comp_mask =
      IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS | IBV_EXP_DEVICE_ATTR_MAX_DCT | IBV_EXP_DEVICE_ATTR_UMR;
  REQUIRE(ibv_exp_query_device(rig.context.get(), &attr) == 0);
  CHECK((attr.exp_device_cap_flags & IBV_EXP_DEVICE_DC_TRANSPORT) != 0);
  CHECK((attr.exp_device_cap_flags & IBV_EXP_DEVICE_UMR) != 0);
  CHECK(attr.max_dct != 0);
  CHECK(attr.umr_caps.max_klm_list_size != 0);

  // Nor how large a send queue may be: verbs say it.
  auto init = rig.qp_attr(IBV_QPT_RC);
  init.cap.max_send_wr = static_cast<std::uint32_t>(attr.max_qp_wr);
  errno = 0;
  CHECK(ibv_exp_create_qp(rig.context.get(), &init) == nullptr);
  CHECK(errno == ENOMEM);
}

// Where the configuration hides atomics.
TEST_CASE(
    "a target does without remote atomics where there are none "
    "[row:ibv_exp_create_dct]",
    "[no-atomics]") {
  Dc dc;
  ibv_device_attr device{};
  REQUIRE(ibv_query_device(dc.context.get(), &device) == 0);
  SKIP_IF(device.atomic_cap != IBV_ATOMIC_NONE, "the device has atomics");
  const Dct dct = dc.make_dct();
  ibv_exp_dct_attr attr{};
  REQUIRE(ibv_exp_query_dct(dct.get(), &attr) == 0);
  CHECK(attr.access_flags == (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ));
  const Qp dci = dc.make_dci();
  auto piece = dc.out.piece(0, 100);
  auto wr = dc.to(dct.get(), IBV_EXP_WR_RDMA_WRITE, 1, &piece);
  dc.aim(wr);
  dc.post(dci.get(), wr);
  CHECK(dc.take().status == IBV_WC_SUCCESS);
}
