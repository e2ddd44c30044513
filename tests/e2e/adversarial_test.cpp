// Calls that no correct program makes, each of which once crashed, or was answered
// as if it were fine.
#include <cerrno>
#include <cstdint>
#include <limits>

#include "pair.h"

namespace {

struct Memory {
  ibv_exp_dm *dm;
  ~Memory() { CHECK(ibv_exp_free_dm(dm) == 0); }
};

// What happens to a request that cannot be followed: nothing of it or behind it is
// posted, what is in front of it is.
void check_refused(Rig &rig, ibv_qp *qp, ibv_exp_send_wr good, ibv_exp_send_wr wrong) {
  ibv_exp_send_wr *bad = nullptr;
  CHECK(ibv_exp_post_send(qp, &wrong, &bad) == EINVAL);
  CHECK(bad == &wrong);
  good.next = &wrong;
  bad = nullptr;
  CHECK(ibv_exp_post_send(qp, &good, &bad) == EINVAL);
  CHECK(bad == &wrong);
  const auto done = rig.completions(1);
  CHECK(done[0].wr_id == good.wr_id);
  CHECK(done[0].status == IBV_WC_SUCCESS);
}

#ifndef IBVEXP_EXTERN_CALLS
// The same through the base verb, where the library has seen the context being opened.
void check_refused_as_base(Rig &rig, ibv_qp *qp, ibv_send_wr good, ibv_send_wr wrong) {
  ibv_send_wr *bad = nullptr;
  CHECK(ibv_post_send(qp, &wrong, &bad) == EINVAL);
  CHECK(bad == &wrong);
  good.next = &wrong;
  bad = nullptr;
  CHECK(ibv_post_send(qp, &good, &bad) == EINVAL);
  CHECK(bad == &wrong);
  CHECK(good.next == &wrong);
  const auto done = rig.completions(1);
  CHECK(done[0].wr_id == good.wr_id);
  CHECK(done[0].status == IBV_WC_SUCCESS);
}
#endif

}  // namespace

TEST_CASE("a copy whose end wraps stays outside of the memory [row:ibv_exp_memcpy_dm]") {
  Rig rig;
  ibv_exp_alloc_dm_attr attr{};
  attr.length = 64;
  const Memory memory{ibv_exp_alloc_dm(rig.context.get(), &attr)};
  REQUIRE(memory.dm != nullptr);
  std::uint8_t bytes[64] = {};
  ibv_exp_memcpy_dm_attr copy{};
  copy.memcpy_dir = GENERATE(IBV_EXP_DM_CPY_TO_DEVICE, IBV_EXP_DM_CPY_TO_HOST);
  copy.host_addr = bytes;
  const auto at = [&](std::uint64_t offset, std::size_t length) {
    copy.dm_offset = offset;
    copy.length = length;
    return ibv_exp_memcpy_dm(memory.dm, &copy);
  };
  constexpr auto most = std::numeric_limits<std::uint64_t>::max();
  CHECK(at(0, 64) == 0);
  CHECK(at(64, 0) == 0);
  CHECK(at(most - 3, 4) == EINVAL);
  CHECK(at(most - 7, 16) == EINVAL);
  CHECK(at(4, most - 3) == EINVAL);
  CHECK(at(64, 4) == EINVAL);
  CHECK(at(0, 68) == EINVAL);
}

// [row:IBV_EXP_INTF_CQ][row:IBV_EXP_INTF_QP_BURST][row:IBV_EXP_INTF_WQ][row:IBV_EXP_INTF_GLOBAL]
// [row:IBV_EXP_INTF_STAT_OK]
TEST_CASE(
    "an interface family is for objects of its kind "
    "[row:ibv_exp_query_intf][row:IBV_EXP_INTF_STAT_INVAL_OBJ]",
    "[engine]") {
  Rig rig, other;
  Buffer buffer(rig.pd.get(), 64);
  const Qp qp = rig.create_qp(IBV_QPT_RC);
  const Qp foreign = other.create_qp(IBV_QPT_RC);
  std::uint64_t zeros[64] = {};
  const auto ask = [&](ibv_exp_intf_family intf, void *object) {
    ibv_exp_query_intf_params params{};
    params.intf_scope = IBV_EXP_INTF_GLOBAL;
    params.intf = intf;
    params.obj = object;
    auto status = IBV_EXP_INTF_STAT_OK;
    void *family = ibv_exp_query_intf(rig.context.get(), &params, &status);
    CHECK((family != nullptr) == (status == IBV_EXP_INTF_STAT_OK));
    if (family != nullptr) CHECK(ibv_exp_release_intf(rig.context.get(), family, nullptr) == 0);
    return status;
  };
  for (void *object : {static_cast<void *>(buffer.mr.get()), static_cast<void *>(rig.pd.get()),
                       static_cast<void *>(zeros), static_cast<void *>(foreign.get()),
                       static_cast<void *>(other.cq.get())})
    for (const auto intf : {IBV_EXP_INTF_QP_BURST, IBV_EXP_INTF_CQ, IBV_EXP_INTF_WQ})
      CHECK(ask(intf, object) == IBV_EXP_INTF_STAT_INVAL_OBJ);
  CHECK(ask(IBV_EXP_INTF_CQ, qp.get()) == IBV_EXP_INTF_STAT_INVAL_OBJ);
  CHECK(ask(IBV_EXP_INTF_WQ, qp.get()) == IBV_EXP_INTF_STAT_INVAL_OBJ);
  CHECK(ask(IBV_EXP_INTF_QP_BURST, rig.cq.get()) == IBV_EXP_INTF_STAT_INVAL_OBJ);
  void *gone = nullptr;
  {
    // Only its address is left.
    const Cq soon(ibv_create_cq(rig.context.get(), 16, nullptr, nullptr, 0));
    gone = soon.get();
  }
  CHECK(ask(IBV_EXP_INTF_CQ, gone) == IBV_EXP_INTF_STAT_INVAL_OBJ);
  const Cq base(ibv_create_cq(rig.context.get(), 16, nullptr, nullptr, 0));
  CHECK(ask(IBV_EXP_INTF_CQ, base.get()) == IBV_EXP_INTF_STAT_OK);
  CHECK(ask(IBV_EXP_INTF_CQ, rig.cq.get()) == IBV_EXP_INTF_STAT_OK);
}

TEST_CASE("unknown members of a query for a family are refused [row:ibv_exp_query_intf]") {
  Rig rig;
  ibv_exp_query_intf_params params{};
  params.intf = IBV_EXP_INTF_CQ;
  params.obj = rig.cq.get();
  params.comp_mask = 1;
  auto status = IBV_EXP_INTF_STAT_OK;
  errno = 0;
  CHECK(ibv_exp_query_intf(rig.context.get(), &params, &status) == nullptr);
  CHECK(errno == EINVAL);
#ifdef IBVEXP_EXTERN_CALLS
  CHECK(status == IBV_EXP_INTF_STAT_INVAL_PARARM);  // else the inline refuses it before
#endif
}

TEST_CASE("unknown versions of a family are refused [row:ibv_exp_query_intf]", "[engine]") {
  Rig rig;
  ibv_exp_query_intf_params params{};
  params.intf = IBV_EXP_INTF_CQ;
  params.obj = rig.cq.get();
  auto status = IBV_EXP_INTF_STAT_OK;
  const auto refused = [&] {
    errno = 0;
    return ibv_exp_query_intf(rig.context.get(), &params, &status) == nullptr && errno == EINVAL;
  };
  SECTION("of completion queues two, of work queues one") {
    params.intf_version = 2;
    CHECK(refused());
    CHECK(status == IBV_EXP_INTF_STAT_VERSION_NOT_SUPPORTED);
    params.intf = IBV_EXP_INTF_WQ;
    params.intf_version = 1;
    CHECK(refused());
    CHECK(status == IBV_EXP_INTF_STAT_VERSION_NOT_SUPPORTED);
  }
  SECTION("not of a queue pair that shares its receives") {
    ibv_srq_init_attr init{nullptr, {8, 1, 0}};
    Owned<ibv_srq, ibv_destroy_srq> srq(ibv_create_srq(rig.pd.get(), &init));
    REQUIRE(srq);
    auto attr = rig.qp_attr(IBV_QPT_RC);
    attr.srq = srq.get();
    const Qp qp(ibv_exp_create_qp(rig.context.get(), &attr));
    REQUIRE(qp);
    rig.connect(qp.get(), qp->qp_num);
    params.intf = IBV_EXP_INTF_QP_BURST;
    params.obj = qp.get();
    CHECK(refused());
    CHECK(status == IBV_EXP_INTF_STAT_INVAL_OBJ);
  }
}

TEST_CASE("a family is released as often as it was obtained [row:ibv_exp_release_intf]",
          "[engine]") {
  Rig rig, other;
  ibv_exp_query_intf_params params{};
  params.intf = IBV_EXP_INTF_CQ;
  params.obj = rig.cq.get();
  const auto query = [&] {
    auto status = IBV_EXP_INTF_STAT_OK;
    return ibv_exp_query_intf(rig.context.get(), &params, &status);
  };
  const auto release = [](Rig &of, void *family) {
    errno = 0;
    const int answer = ibv_exp_release_intf(of.context.get(), family, nullptr);
    CHECK(errno == answer);
    return answer;
  };
  CHECK(release(rig, nullptr) == 0);
  int garbage = 0;
  CHECK(release(rig, &garbage) == EINVAL);
  void *family = query();
  REQUIRE(family != nullptr);
  CHECK(query() == family);
  CHECK(release(other, family) == EINVAL);
  CHECK(release(rig, family) == 0);
  CHECK(release(rig, family) == 0);
  CHECK(release(rig, family) == EINVAL);
}

TEST_CASE("a specification is no longer than the longest there is [row:ibv_exp_create_flow]") {
  Rig rig;
  const Qp qp = rig.create_qp(IBV_QPT_UD);
  alignas(8) unsigned char room[sizeof(ibv_exp_flow_attr) + 4096] = {};
  auto &attr = *reinterpret_cast<ibv_exp_flow_attr *>(room);
  auto &spec = *reinterpret_cast<ibv_exp_flow_spec *>(&attr + 1);
  attr.type = IBV_EXP_FLOW_ATTR_NORMAL;
  attr.size = sizeof(attr) + sizeof(ibv_exp_flow_spec_eth);
  attr.num_of_specs = 1;
  attr.port = 1;
  spec.eth.type = IBV_EXP_FLOW_SPEC_ETH;
  spec.eth.size = GENERATE(65535, 65534, 32768, 96);
  errno = 0;
  CHECK(ibv_exp_create_flow(qp.get(), &attr) == nullptr);
  CHECK(errno == EINVAL);
}

TEST_CASE("objects of another context are refused through the base verb [row:ibv_exp_create_qp]") {
  Rig rig, other;
  ibv_srq_init_attr init{nullptr, {16, 1, 0}};
  const Owned<ibv_srq, ibv_destroy_srq> srq(ibv_create_srq(other.pd.get(), &init));
  auto attr = rig.qp_attr(IBV_QPT_RC);
  attr.comp_mask = IBV_EXP_QP_INIT_ATTR_PD;
  SECTION("protection domain") { attr.pd = other.pd.get(); }
  SECTION("send CQ") { attr.send_cq = other.cq.get(); }
  SECTION("receive CQ") { attr.recv_cq = other.cq.get(); }
  SECTION("shared receive queue") { attr.srq = srq.get(); }
  SECTION("no send CQ") { attr.send_cq = nullptr; }
  SECTION("no receive CQ") { attr.recv_cq = nullptr; }
  errno = 0;
  CHECK(ibv_exp_create_qp(rig.context.get(), &attr) == nullptr);
  CHECK(errno == EINVAL);
}

TEST_CASE("more inline data than an entry holds is refused, however much [row:ibv_exp_create_qp]") {
  Rig rig;
  auto attr = rig.qp_attr(GENERATE(IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD));
  attr.comp_mask |= IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS;
#ifndef EXP_LIBRARY
  if (GENERATE(false, true)) attr.comp_mask = IBV_EXP_QP_INIT_ATTR_PD;  // goes by the base verb
#endif
  attr.cap.max_inline_data = GENERATE(1024u, 0x10000u, 0x7fffffc0u, 0x80000000u, 0xffffffffu);
  errno = 0;
  CHECK(ibv_exp_create_qp(rig.context.get(), &attr) == nullptr);
  CHECK(errno == EINVAL);
}

#ifndef EXP_LIBRARY  // base verbs are rdma-core's own there
TEST_CASE("base verbs refuse what is not there") {
  Rig rig;
  ibv_srq_init_attr init{nullptr, {16, 1, 0}};
  errno = 0;
  CHECK(ibv_create_srq(nullptr, &init) == nullptr);
  CHECK(errno == EINVAL);
  errno = 0;
  CHECK(ibv_create_srq(rig.pd.get(), nullptr) == nullptr);
  CHECK(errno == EINVAL);
  errno = 0;
  CHECK(ibv_create_cq(nullptr, 16, nullptr, nullptr, 0) == nullptr);
  CHECK(errno == EINVAL);
  CHECK(ibv_dereg_mr(nullptr) == EINVAL);
  CHECK(ibv_close_device(nullptr) == EINVAL);
}
#endif

TEST_CASE("a request without its pieces is refused [row:ibv_exp_post_send]") {
  const auto type = GENERATE(IBV_QPT_RC, IBV_QPT_UC);
  Pair p(type);
  auto piece = p.out.piece(0, 64);
  auto wrong = p.write(2, &piece);
  wrong.sg_list = nullptr;
  SECTION("one") { wrong.num_sge = 1; }
  SECTION("several") { wrong.num_sge = 4; }
  SECTION("inline") { wrong.exp_send_flags |= IBV_EXP_SEND_INLINE; }
  SECTION("inline, several") {
    wrong.exp_send_flags |= IBV_EXP_SEND_INLINE;
    wrong.num_sge = 2;
  }
  check_refused(p, p.a.get(), p.write(1, &piece), wrong);
}

TEST_CASE("more pieces than any queue takes are not followed [row:ibv_exp_post_send]") {
  Pair p(IBV_QPT_RC);
  auto piece = p.out.piece(0, 0);
  auto wrong = p.write(2, &piece);
  wrong.num_sge = std::numeric_limits<int>::max();
  wrong.exp_send_flags |= GENERATE(0ull, std::uint64_t{IBV_EXP_SEND_INLINE});
  ibv_exp_send_wr *bad = nullptr;
  CHECK(ibv_exp_post_send(p.a.get(), &wrong, &bad) == ENOMEM);
  CHECK(bad == &wrong);
}

TEST_CASE("a datagram without an address is refused [row:ibv_exp_post_send]") {
  Rig rig;
  const Qp qp = rig.create_qp(IBV_QPT_UD);
  rig.connect(qp.get(), 0);
  Buffer buffer(rig.pd.get(), 64);
  ibv_ah_attr address{};
  ibv_port_attr port{};
  REQUIRE(ibv_query_port(rig.context.get(), 1, &port) == 0);
  address.port_num = 1;
  address.dlid = port.lid;
  if (port.link_layer == IBV_LINK_LAYER_ETHERNET) {
    address.is_global = 1;
    address.grh.sgid_index = 1;
    REQUIRE(ibv_query_gid(rig.context.get(), 1, 1, &address.grh.dgid) == 0);
  }
  const Owned<ibv_ah, ibv_destroy_ah> ah(ibv_create_ah(rig.pd.get(), &address));
  REQUIRE(ah);
  auto piece = buffer.piece(0, 64);
  auto good = request(1, IBV_EXP_WR_SEND, &piece);
  good.wr.ud = {ah.get(), qp->qp_num, 0x11111111};
  auto wrong = good;
  wrong.wr_id = 2;
  wrong.wr.ud.ah = nullptr;
  wrong.exp_opcode = GENERATE(IBV_EXP_WR_SEND, IBV_EXP_WR_SEND_WITH_IMM);
  check_refused(rig, qp.get(), good, wrong);
#ifndef IBVEXP_EXTERN_CALLS
  ibv_send_wr base{};
  base.wr_id = 3;
  base.sg_list = &piece;
  base.num_sge = 1;
  base.opcode = IBV_WR_SEND;
  base.send_flags = IBV_SEND_SIGNALED;
  base.wr.ud = {ah.get(), qp->qp_num, 0x11111111};
  auto lost = base;
  lost.wr_id = 4;
  SECTION("no address") { lost.wr.ud.ah = nullptr; }
  SECTION("no list") { lost.sg_list = nullptr; }
  check_refused_as_base(rig, qp.get(), base, lost);
#endif
}

TEST_CASE("completions need a place [row:ibv_exp_poll_cq]") {
  Pair p(IBV_QPT_RC);
  auto piece = p.out.piece(0, 64);
  auto write = p.write(1, &piece);
  p.post(write);
  // Not while there is none.
  int answer = 0;
  for (int turns = 0; answer == 0 && turns < 50'000'000; ++turns)
    answer = ibv_exp_poll_cq(p.cq.get(), 1, nullptr, sizeof(ibv_exp_wc));
  CHECK(answer == -EINVAL);
  p.complete(1);
}
