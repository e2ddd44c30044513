// What a switch of IBVEXP_BEYOND opens and needs no tests of its own file: each as it is by default,
// refused, and with the switch.
#include <infiniband/mlx5dv.h>
#include <skip.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <string>
#include <thread>

#include "dc_rig.h"
#include "log_of.h"
#include "pair.h"

namespace {

using Words = std::array<__be32, 128>;

// What the device knows of a queue, behind the header of its answer.
template <class Query, class Object>
Words ask(Query query, Object *object, std::uint32_t opcode, std::uint32_t number) {
  const std::array<__be32, 4> in{htobe32(opcode << 16), 0, htobe32(number)};
  Words out{};
  REQUIRE(query(object, in.data(), sizeof(in), out.data(), sizeof(out)) == 0);
  return out;
}

bool ignores_overrun(ibv_cq *cq) {
  mlx5dv_cq facts{};
  mlx5dv_obj object{};
  object.cq.in = cq;
  object.cq.out = &facts;
  REQUIRE(mlx5dv_init_obj(&object, MLX5DV_OBJ_CQ) == 0);
  return (be32toh(ask(mlx5dv_devx_cq_query, cq, 0x402, facts.cqn)[4]) >> 17 & 1) != 0;
}

std::uint32_t source_port(ibv_qp *qp) {
  // The path is 24 bytes into the context, which is 24 bytes into the answer; the port 34 into it.
  return be32toh(ask(mlx5dv_devx_qp_query, qp, 0x50b, qp->qp_num)[(24 + 24 + 32) / 4]) & 0xffff;
}

int modify_entropy(ibv_qp *qp, std::uint32_t entropy, std::uint64_t more = 0) {
  ibv_exp_qp_attr attr{};
  attr.comp_mask = IBV_EXP_QP_ATTR_FLOW_ENTROPY;
  attr.flow_entropy = entropy;
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  return ibv_exp_modify_qp(qp, &attr, IBV_EXP_QP_FLOW_ENTROPY | more);
}

}  // namespace

TEST_CASE("a completion queue in use may be overrun [row:IBV_EXP_CQ_IGNORE_OVERRUN]", "[engine]") {
  Rig rig;
  rig.cq = rig.create_cq(7);
  Buffer out(rig.pd.get(), 4096), in(rig.pd.get(), 4096);
  const Qp a = rig.create_qp(IBV_QPT_RC), b = rig.create_qp(IBV_QPT_RC);
  rig.connect(a.get(), b->qp_num);
  rig.connect(b.get(), a->qp_num);
  const auto write = [&](std::uint8_t value) {
    out.bytes[0] = value;
    auto piece = out.piece(0, 1);
    auto wr = request(value, IBV_EXP_WR_RDMA_WRITE, &piece);
    wr.wr.rdma.remote_addr = in.address();
    wr.wr.rdma.rkey = in.mr->rkey;
    ibv_exp_send_wr *bad = nullptr;
    REQUIRE(ibv_exp_post_send(a.get(), &wr, &bad) == 0);
    auto *const landed = static_cast<volatile std::uint8_t *>(in.bytes.data());
    for (int turns = 0; *landed != value && turns < 50'000'000; ++turns) {
    }
    REQUIRE(*landed == value);
  };
  write(1);
  CHECK(rig.completions(1)[0].status == IBV_WC_SUCCESS);

  ibv_exp_cq_attr attr{};
  attr.comp_mask = IBV_EXP_CQ_ATTR_CQ_CAP_FLAGS;
  attr.cq_cap_flags = IBV_EXP_CQ_IGNORE_OVERRUN;
  if (!switched_on("cq_ignore_overrun")) {
    CHECK(ibv_exp_modify_cq(rig.cq.get(), &attr, IBV_EXP_CQ_CAP_FLAGS) == ENOTSUP);
    CHECK(!ignores_overrun(rig.cq.get()));
    return;
  }
  REQUIRE(ibv_exp_modify_cq(rig.cq.get(), &attr, IBV_EXP_CQ_CAP_FLAGS) == 0);
  CHECK(ignores_overrun(rig.cq.get()));
  for (std::uint8_t value = 2; value < 40; ++value) write(value);
  ibv_qp_attr now{};
  ibv_qp_init_attr init{};
  REQUIRE(ibv_query_qp(a.get(), &now, IBV_QP_STATE, &init) == 0);
  CHECK(now.qp_state == IBV_QPS_RTS);

  attr.cq_cap_flags = 0;
  REQUIRE(ibv_exp_modify_cq(rig.cq.get(), &attr, IBV_EXP_CQ_CAP_FLAGS) == 0);
  CHECK(!ignores_overrun(rig.cq.get()));
}

// Under the thread sanitizer, and by what is polled.
TEST_CASE(
    "a completion queue is polled while its overrun check is switched "
    "[row:IBV_EXP_CQ_IGNORE_OVERRUN]",
    "[engine]") {
  constexpr std::uint64_t requests = 2000;
  Rig rig;
  rig.cq = rig.create_cq(64);
  ibv_cq *const cq = rig.cq.get();
  std::atomic<bool> started{false}, failed{false};
  std::atomic<std::uint64_t> polled{0};
  std::thread polling([&] {
    while (polled < requests && !failed) {
      ibv_exp_wc wc{};
      const int count = ibv_exp_poll_cq(cq, 1, &wc, sizeof(wc));
      started = true;
      if (count < 0 || (count > 0 && (wc.status != IBV_WC_SUCCESS || wc.wr_id != polled)))
        failed = true;
      else if (count > 0) ++polled;
    }
  });
  while (!started) {
  }
  // Unused it is made again, used a command changes it.
  ibv_exp_cq_attr attr{};
  attr.comp_mask = IBV_EXP_CQ_ATTR_CQ_CAP_FLAGS;
  const auto change = [&](std::uint32_t flags) {
    attr.cq_cap_flags = flags;
    return ibv_exp_modify_cq(cq, &attr, IBV_EXP_CQ_CAP_FLAGS);
  };
  CHECK(change(IBV_EXP_CQ_IGNORE_OVERRUN) == 0);
  {
    Buffer out(rig.pd.get(), 64), in(rig.pd.get(), 64);
    const Qp a = rig.create_qp(IBV_QPT_RC), b = rig.create_qp(IBV_QPT_RC);
    rig.connect(a.get(), b->qp_num);
    rig.connect(b.get(), a->qp_num);
    std::uint32_t flags = 0;
    for (std::uint64_t posted = 0; posted < requests && !failed;) {
      if (posted - polled >= 16) continue;
      auto piece = out.piece(0, 8);
      auto wr = request(posted++, IBV_EXP_WR_RDMA_WRITE, &piece);
      wr.wr.rdma.remote_addr = in.address();
      wr.wr.rdma.rkey = in.mr->rkey;
      ibv_exp_send_wr *bad = nullptr;
      if (ibv_exp_post_send(a.get(), &wr, &bad) != 0) failed = true;
      if (posted % 16 != 0) continue;
      const int error = change(flags);
      if (error != (switched_on("cq_ignore_overrun") ? 0 : ENOTSUP) && (error != 0 || flags == 0))
        failed = true;
      flags ^= IBV_EXP_CQ_IGNORE_OVERRUN;
    }
    for (std::uint64_t turns = 0; polled < requests && !failed && turns < 2'000'000'000; ++turns) {
    }
    if (polled < requests) failed = true;
    polling.join();
  }
  CHECK(!failed);
  CHECK(polled == requests);
}

TEST_CASE("unread completions go with their queue pair after IGNORE_OVERRUN was asked for") {
  Rig rig;
  Buffer out(rig.pd.get(), 4096), in(rig.pd.get(), 4096);
  Qp a = rig.create_qp(IBV_QPT_RC);
  const Qp b = rig.create_qp(IBV_QPT_RC);
  rig.connect(a.get(), b->qp_num);
  rig.connect(b.get(), a->qp_num);
  ibv_exp_cq_attr attr{};
  attr.comp_mask = IBV_EXP_CQ_ATTR_CQ_CAP_FLAGS;
  attr.cq_cap_flags = IBV_EXP_CQ_IGNORE_OVERRUN;
  ibv_exp_modify_cq(rig.cq.get(), &attr, IBV_EXP_CQ_CAP_FLAGS);

  // What the second request reads is here after the completion of the first.
  in.bytes[0] = 1;
  auto piece = out.piece(0, 1);
  for (const auto opcode : {IBV_EXP_WR_RDMA_WRITE, IBV_EXP_WR_RDMA_READ}) {
    const bool last = opcode == IBV_EXP_WR_RDMA_READ;
    auto wr = request(1, opcode, &piece);
    if (last) wr.exp_send_flags = 0;
    wr.wr.rdma.remote_addr = in.address() + (last ? 0 : 1);
    wr.wr.rdma.rkey = in.mr->rkey;
    ibv_exp_send_wr *bad = nullptr;
    REQUIRE(ibv_exp_post_send(a.get(), &wr, &bad) == 0);
  }
  auto *const landed = static_cast<volatile std::uint8_t *>(out.bytes.data());
  for (int turns = 0; *landed != 1 && turns < 50'000'000; ++turns) {
  }
  REQUIRE(*landed == 1);
  a.reset();
  ibv_exp_wc wc{};
  CHECK(ibv_exp_poll_cq(rig.cq.get(), 1, &wc, sizeof(wc)) == 0);
}

// Before the queue is in use, and beside what the engine drives.
TEST_CASE("modern queue pairs keep a completion queue that may be overrun", "[engine]") {
  const bool in_use = GENERATE(false, true);
  Rig rig;
  const Cq cq = rig.create_cq(7);
  ibv_exp_cq_attr attr{};
  attr.comp_mask = IBV_EXP_CQ_ATTR_CQ_CAP_FLAGS;
  attr.cq_cap_flags = IBV_EXP_CQ_IGNORE_OVERRUN;
  REQUIRE(ibv_exp_modify_cq(cq.get(), &attr, IBV_EXP_CQ_CAP_FLAGS) == 0);
  Qp driven;
  if (in_use) {
    auto init = rig.qp_attr(IBV_QPT_RC);
    init.send_cq = init.recv_cq = cq.get();
    driven.reset(ibv_exp_create_qp(rig.context.get(), &init));
    REQUIRE(driven);
  }
  ibv_qp_init_attr_ex init{};
  init.send_cq = init.recv_cq = cq.get();
  init.cap = {1, 1, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.pd = rig.pd.get();
  init.send_ops_flags = IBV_QP_EX_WITH_SEND;
  const Qp modern(ibv_create_qp_ex(rig.context.get(), &init));
  REQUIRE(modern);
  CHECK(ignores_overrun(modern->send_cq));
}

TEST_CASE("an unused completion queue may be overrun without commands", "[no-commands][engine]") {
  Rig rig;
  const Cq cq = rig.create_cq(7);
  ibv_exp_cq_attr attr{};
  attr.comp_mask = IBV_EXP_CQ_ATTR_CQ_CAP_FLAGS;
  CHECK(ibv_exp_modify_cq(cq.get(), &attr, IBV_EXP_CQ_CAP_FLAGS) == 0);
  attr.cq_cap_flags = IBV_EXP_CQ_IGNORE_OVERRUN;
  CHECK(ibv_exp_modify_cq(cq.get(), &attr, IBV_EXP_CQ_CAP_FLAGS) == 0);
  CHECK(ibv_exp_modify_cq(cq.get(), &attr, IBV_EXP_CQ_CAP_FLAGS) == 0);
}

TEST_CASE("a region moves to memory of the library [row:contig_rereg_mr_allocate]") {
  constexpr int all = IBV_EXP_REREG_MR_CHANGE_TRANSLATION | IBV_EXP_REREG_MR_CHANGE_ACCESS;
  constexpr std::uint64_t access =
      IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_REMOTE_WRITE | IBV_EXP_ACCESS_ALLOCATE_MR;
  constexpr std::size_t first_size = 32 << 20;
  Pair p(IBV_QPT_RC);
  ibv_exp_reg_mr_in in{};
  in.pd = p.pd.get();
  in.length = first_size;
  in.exp_access = access;
  const Mr mr(ibv_exp_reg_mr(&in));
  REQUIRE(mr);
  void *const first = mr->addr;
  if (!switched_on("rereg_allocate")) {
    CHECK(ibv_exp_rereg_mr(mr.get(), all, nullptr, nullptr, 8192, access, nullptr) == ENOTSUP);
    CHECK(mr->addr == first);
    return;
  }
  CHECK(ibv_exp_rereg_mr(mr.get(), IBV_EXP_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 8192, access,
                         nullptr) == EINVAL);
  CHECK(ibv_exp_rereg_mr(mr.get(), all, nullptr, first, 8192, access, nullptr) == EINVAL);
  CHECK(ibv_exp_rereg_mr(mr.get(), all, nullptr, nullptr, 0, access, nullptr) == EINVAL);
  CHECK(mr->addr == first);

  REQUIRE(ibv_exp_rereg_mr(mr.get(), all, nullptr, nullptr, 8192, access, nullptr) == 0);
  CHECK(mr->length == 8192);
  REQUIRE(mr->addr != nullptr);
  CHECK(mr->addr != first);
  // What was there is no memory any more, but for what others have put there meanwhile.
  CHECK(msync(static_cast<char *>(first) + first_size / 2, 4096, MS_ASYNC) == -1);

  auto *const bytes = static_cast<std::uint8_t *>(mr->addr);
  auto piece = p.out.piece(0, 100);
  auto wr = p.write(1, &piece);
  wr.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(bytes) + 8000;
  wr.wr.rdma.rkey = mr->rkey;
  p.post(wr);
  p.complete(1);
  CHECK(std::equal(bytes + 8000, bytes + 8100, p.out.bytes.begin()));

  // A region of the program's own memory moves there, too; the memory stays the program's.
  void *const own = p.in.mr->addr;
  REQUIRE(ibv_exp_rereg_mr(p.in.mr.get(), all, nullptr, nullptr, 4096, access, nullptr) == 0);
  CHECK(p.in.mr->addr != own);
  p.in.bytes[0] = 1;
}

TEST_CASE("ibv_exp_query_dct counts requests with another key [row:dc_query_dct_key_violations]") {
  Dc dc;
  const Dct dct = dc.make_dct();
  const Qp dci = dc.make_dci();
  ibv_exp_dct_attr attr{};
  REQUIRE(ibv_exp_query_dct(dct.get(), &attr) == 0);
  CHECK(attr.key_violations == 0);
  auto piece = dc.out.piece(0, 100);
  auto wr = dc.to(dct.get(), IBV_EXP_WR_RDMA_WRITE, 1, &piece);
  dc.aim(wr);
  wr.dc.dct_access_key = key + 1;
  dc.post(dci.get(), wr);
  CHECK(dc.take().status == IBV_WC_RETRY_EXC_ERR);
  REQUIRE(ibv_exp_query_dct(dct.get(), &attr) == 0);
  CHECK((attr.key_violations != 0) == switched_on("dct_query"));
  CHECK(attr.dc_key == key);
  CHECK(attr.state == IBV_EXP_DCT_STATE_ACTIVE);
}

TEST_CASE("ibv_exp_query_dct answers without commands", "[no-commands]") {
  Dc dc;
  const Dct dct = dc.make_dct();
  ibv_exp_dct_attr attr{};
  REQUIRE(ibv_exp_query_dct(dct.get(), &attr) == 0);
  CHECK(attr.dc_key == key);
  CHECK(attr.key_violations == 0);
  CHECK(attr.state == IBV_EXP_DCT_STATE_ACTIVE);
}

TEST_CASE(
    "flow entropy chooses the source port of RoCE [row:entropy_modify_qp] "
    "[row:IBV_EXP_QP_ATTR_FLOW_ENTROPY] [row:IBV_EXP_QP_FLOW_ENTROPY]",
    "[rdma-core-33]") {
  const auto type = GENERATE(IBV_QPT_RC, IBV_QPT_UC);
  Pair p(type);
  ibv_port_attr port{};
  REQUIRE(ibv_query_port(p.context.get(), 1, &port) == 0);
  if (!switched_on("flow_entropy") || port.link_layer != IBV_LINK_LAYER_ETHERNET) {
    CHECK(modify_entropy(p.a.get(), 5) == ENOTSUP);
    return;
  }
  const std::uint32_t before = source_port(p.b.get());
  REQUIRE(modify_entropy(p.a.get(), 5) == 0);
  CHECK(source_port(p.a.get()) == (0xc000 | 5));
  REQUIRE(modify_entropy(p.a.get(), 1 << 21) == 0);
  CHECK(source_port(p.a.get()) == (0xc000 | 2));
  CHECK(source_port(p.b.get()) == before);
  auto piece = p.out.piece(0, 100);
  // An unreliable request is complete before it arrives.
  post_receive(p.b.get(), 2, p.in.piece(0, 100));
  auto wr = request(1, IBV_EXP_WR_SEND, &piece);
  p.post(wr);
  const auto [sent, got] = both(p);
  CHECK(sent.status == IBV_WC_SUCCESS);
  CHECK(got.status == IBV_WC_SUCCESS);
  CHECK(std::equal(p.in.bytes.begin(), p.in.bytes.begin() + 100, p.out.bytes.begin()));

  // Before RTS it waits; a request that fails asks for nothing.
  const Qp late = p.create_qp(type);
  REQUIRE(modify_entropy(late.get(), 7,
                         IBV_EXP_QP_STATE | IBV_EXP_QP_PKEY_INDEX | IBV_EXP_QP_PORT |
                             IBV_EXP_QP_ACCESS_FLAGS) == 0);
  CHECK(modify_entropy(late.get(), 9, IBV_EXP_QP_QKEY) != 0);
  p.connect(late.get(), p.b->qp_num);
  CHECK(source_port(late.get()) == (0xc000 | 7));

  ibv_exp_qp_attr unmarked{};
  unmarked.flow_entropy = 5;
  CHECK(ibv_exp_modify_qp(p.a.get(), &unmarked, IBV_EXP_QP_FLOW_ENTROPY) == EINVAL);
  const Qp datagram = p.create_qp(IBV_QPT_UD);
  CHECK(modify_entropy(datagram.get(), 5) == ENOTSUP);
}

TEST_CASE("a device that takes no source port keeps nothing from RTS",
          "[no-commands][rdma-core-33]") {
  const auto type = GENERATE(IBV_QPT_RC, IBV_QPT_UC);
  Pair p(type);
  ibv_port_attr port{};
  REQUIRE(ibv_query_port(p.context.get(), 1, &port) == 0);
  SKIP_IF(port.link_layer != IBV_LINK_LAYER_ETHERNET, "no RoCE");
  SKIP_IF(std::getenv("SOFTHCA_CONFIG") == nullptr, "the device takes commands");
  const Qp late = p.create_qp(type);
  ibv_exp_qp_attr attr{};
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  const std::string said = log_of([&] {
    REQUIRE(modify_entropy(late.get(), 7,
                           IBV_EXP_QP_STATE | IBV_EXP_QP_PKEY_INDEX | IBV_EXP_QP_PORT |
                               IBV_EXP_QP_ACCESS_FLAGS) == 0);
    p.connect(late.get(), p.b->qp_num);
    CHECK(ibv_exp_modify_qp(late.get(), &attr, IBV_EXP_QP_ACCESS_FLAGS) == 0);
  });
  CHECK(late->state == IBV_QPS_RTS);
  CHECK(said ==
        "ibvexp: ibv_exp_modify_qp: flow_entropy: the UDP source port cannot be set: "
        "Operation not supported\n");

  // Nothing else is asked.
  CHECK(log_of([&] {
          CHECK(modify_entropy(late.get(), 9) == EOPNOTSUPP);
          CHECK(ibv_exp_modify_qp(late.get(), &attr, IBV_EXP_QP_ACCESS_FLAGS) == 0);
        }).empty());
}
