// Receives that several queue pairs share, XRC, and keys that are taken back.
#include <fcntl.h>
#include <infiniband/mlx5dv.h>

#include <numeric>

#include "log_of.h"
#include "rig.h"

namespace {

using Srq = Owned<ibv_srq, ibv_destroy_srq>;
using Domain = Owned<ibv_xrcd, ibv_close_xrcd>;
using Window = Owned<ibv_mw, ibv_dealloc_mw>;

ibv_exp_create_srq_attr srq_attr(Rig &rig, ibv_exp_srq_type type = IBV_EXP_SRQT_BASIC) {
  ibv_exp_create_srq_attr attr{};
  attr.base.srq_context = &rig;
  attr.base.attr = {32, 2, 0};
  attr.srq_type = type;
  attr.pd = rig.pd.get();
  return attr;
}

void post_shared(ibv_srq *srq, std::uint64_t id, ibv_sge piece) {
  ibv_recv_wr wr{}, *bad = nullptr;
  wr.wr_id = id;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  REQUIRE(ibv_post_srq_recv(srq, &wr, &bad) == 0);
}

void post(ibv_qp *qp, ibv_exp_send_wr &wr) {
  ibv_exp_send_wr *bad = nullptr;
  REQUIRE(ibv_exp_post_send(qp, &wr, &bad) == 0);
}

void refused(Rig &rig, ibv_exp_create_srq_attr &attr, int reason) {
  errno = 0;
  CHECK(ibv_exp_create_srq(rig.context.get(), &attr) == nullptr);
  CHECK(errno == reason);
}

// The completion of the sender and that of the receiver, in this order.
std::pair<ibv_exp_wc, ibv_exp_wc> both(Rig &rig) {
  auto all = rig.completions(2);
  if (all[0].exp_opcode >= IBV_EXP_WC_RECV) std::swap(all[0], all[1]);
  CHECK(all[0].status == IBV_WC_SUCCESS);
  CHECK(all[1].status == IBV_WC_SUCCESS);
  return {all[0], all[1]};
}

}  // namespace

TEST_CASE("queue pairs share their receives [row:ibv_exp_create_srq]") {
  Rig rig;
  auto attr = srq_attr(rig);
  errno = 4711;
  Srq srq(ibv_exp_create_srq(rig.context.get(), &attr));
  REQUIRE(srq);
  CHECK(errno == 4711);
  CHECK(attr.base.attr.max_wr > 32);  // one less than a power of two
  CHECK(srq->srq_context == &rig);
  CHECK(srq->pd == rig.pd.get());

  constexpr int pairs = 3;
  Buffer out(rig.pd.get(), 1024), in(rig.pd.get(), 4096);
  std::iota(out.bytes.begin(), out.bytes.end(), std::uint8_t{5});
  std::vector<Qp> from, to;
  for (int i = 0; i < pairs; ++i) {
    from.push_back(rig.create_qp(IBV_QPT_RC));
    auto with = rig.qp_attr(IBV_QPT_RC);
    with.srq = srq.get();
    to.emplace_back(ibv_exp_create_qp(rig.context.get(), &with));
    REQUIRE(to.back());
    rig.connect(from[i].get(), to[i]->qp_num);
    rig.connect(to[i].get(), from[i]->qp_num);
    post_shared(srq.get(), 100 + i, in.piece(static_cast<std::size_t>(i) * 1024, 1024));
  }
  for (int i = pairs - 1; i >= 0; --i) {
    auto piece = out.piece(0, 1000);
    auto wr = request(i, IBV_EXP_WR_SEND, &piece);
    post(from[i].get(), wr);
    const auto got = both(rig).second;
    const auto round = static_cast<std::size_t>(pairs - 1 - i);
    CHECK(got.wr_id == 100 + round);  // in the order of posting, whoever receives
    CHECK((got.exp_wc_flags & (IBV_EXP_WC_SRQ | IBV_EXP_WC_QP)) ==
          (IBV_EXP_WC_SRQ | IBV_EXP_WC_QP));
    CHECK(got.srq == srq.get());
    CHECK(got.qp == to[i].get());
    CHECK(std::memcmp(in.bytes.data() + round * 1024, out.bytes.data(), 1000) == 0);
  }
}

TEST_CASE(
    "shared receive queues that cannot be had "
    "[row:ibv_exp_create_srq][row:tm_rndv_offload]") {
  Rig rig, other;
  auto attr = srq_attr(rig);
  if (!switched_on("tag_matching")) {
    SECTION("tags") {
      attr.srq_type = IBV_EXP_SRQT_TAG_MATCHING;
      refused(rig, attr, ENOTSUP);
    }
  }
  SECTION("unknown bits") {
    attr.comp_mask = IBV_EXP_CREATE_SRQ_RESERVED;
    refused(rig, attr, EINVAL);
  }
  SECTION("no such type") {
    attr.srq_type = static_cast<ibv_exp_srq_type>(7);
    refused(rig, attr, EINVAL);
  }
  SECTION("protection domain of another context") {
    attr.pd = other.pd.get();
    refused(rig, attr, EINVAL);
  }
  SECTION("no protection domain") {
    attr.pd = nullptr;
    refused(rig, attr, EINVAL);
  }
  SECTION("too large") {
    attr.base.attr.max_wr = 1u << 30;
    refused(rig, attr, EINVAL);
  }
  SECTION("XRC without a domain") {
    attr.srq_type = IBV_EXP_SRQT_XRC;
    attr.comp_mask = IBV_EXP_CREATE_SRQ_CQ;
    attr.cq = rig.cq.get();
    refused(rig, attr, EINVAL);
  }
  SECTION("XRC without a completion queue") {
    attr.srq_type = IBV_EXP_SRQT_XRC;
    refused(rig, attr, EINVAL);
  }
  SECTION("XRC with the completion queue of another context") {
    ibv_xrcd_init_attr of{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, -1, O_CREAT};
    const Domain domain(ibv_open_xrcd(rig.context.get(), &of));
    attr.srq_type = IBV_EXP_SRQT_XRC;
    attr.comp_mask = IBV_EXP_CREATE_SRQ_CQ | IBV_EXP_CREATE_SRQ_XRCD;
    attr.cq = other.cq.get();
    attr.xrcd = domain.get();
    refused(rig, attr, EINVAL);
  }
}

TEST_CASE("a list of receives with and without pieces is posted whole [row:ibv_exp_create_srq]") {
  Rig rig;
  auto attr = srq_attr(rig);
  attr.base.attr.max_sge = 1;
  const Srq srq(ibv_exp_create_srq(rig.context.get(), &attr));
  REQUIRE(srq);
  Buffer out(rig.pd.get(), 1024), in(rig.pd.get(), 4096);
  const Qp from = rig.create_qp(IBV_QPT_RC);
  auto with = rig.qp_attr(IBV_QPT_RC);
  with.srq = srq.get();
  const Qp to(ibv_exp_create_qp(rig.context.get(), &with));
  REQUIRE(to);
  rig.connect(from.get(), to->qp_num);
  rig.connect(to.get(), from->qp_num);

  ibv_sge pieces[] = {in.piece(0, 1024), in.piece(1024, 1024), in.piece(2048, 1024)};
  ibv_recv_wr list[3] = {}, *bad = nullptr;
  for (int i = 0; i < 3; ++i) {
    list[i].wr_id = static_cast<std::uint64_t>(i);
    list[i].sg_list = &pieces[i];
    list[i].num_sge = i == 1 ? 0 : 1;
    list[i].next = i < 2 ? &list[i + 1] : nullptr;
  }
  REQUIRE(ibv_post_srq_recv(srq.get(), list, &bad) == 0);
  for (std::uint64_t i = 0; i < 3; ++i) {
    auto piece = out.piece(0, 1024);
    auto wr = request(10 + i, IBV_EXP_WR_SEND, &piece);
    if (i == 1) wr.num_sge = 0;
    post(from.get(), wr);
    const auto received = both(rig).second;
    CHECK(received.wr_id == i);
    CHECK(received.byte_len == (i == 1 ? 0 : 1024));
  }
}

// The legacy provider did not look at it. [row:tm_create_dct]
TEST_CASE("a basic queue ignores what is for other types [row:ibv_exp_create_srq]") {
  Rig rig;
  auto attr = srq_attr(rig);
  attr.comp_mask = GENERATE(IBV_EXP_CREATE_SRQ_TM, IBV_EXP_CREATE_SRQ_MP_WR,
                            IBV_EXP_CREATE_SRQ_DC_OFFLOAD_PARAMS);
  const auto asked = attr.base.attr.max_wr;
  Srq srq;
  const std::string said = log_of([&] { srq.reset(ibv_exp_create_srq(rig.context.get(), &attr)); });
  REQUIRE(srq);
  CHECK((said.find("ignored: has bits for other types of SRQ") != std::string::npos) == informs());
  CHECK(attr.base.attr.max_wr >= asked);
  // What was granted, and not what the kernel's queue has.
  ibv_srq_attr now{};
  REQUIRE(ibv_query_srq(srq.get(), &now) == 0);
  if (engine_drives() && mlx5dv_is_supported(rig.context->device))
    CHECK(now.max_wr == attr.base.attr.max_wr);
}

TEST_CASE("XRC: a target is of the domain's context [row:IBV_EXP_QP_INIT_ATTR_XRCD]") {
  Rig rig, elsewhere;
  ibv_xrcd_init_attr open{};
  open.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  open.fd = -1;
  open.oflags = O_CREAT;
  // Of the same number in both.
  const Owned<ibv_xrcd, ibv_close_xrcd> own(ibv_open_xrcd(rig.context.get(), &open));
  const Owned<ibv_xrcd, ibv_close_xrcd> foreign(ibv_open_xrcd(elsewhere.context.get(), &open));
  REQUIRE(own);
  REQUIRE(foreign);
  ibv_exp_qp_init_attr attr{};
  attr.qp_type = IBV_QPT_XRC_RECV;
  attr.comp_mask = IBV_EXP_QP_INIT_ATTR_XRCD;
  attr.xrcd = foreign.get();
  errno = 0;
  CHECK(ibv_exp_create_qp(rig.context.get(), &attr) == nullptr);
  CHECK(errno == EINVAL);
  attr.xrcd = own.get();
  CHECK(Qp(ibv_exp_create_qp(rig.context.get(), &attr)));
}

TEST_CASE("XRC: the request names the queue [row:IBV_EXP_QP_INIT_ATTR_XRCD]") {
  Rig rig;
  ibv_xrcd_init_attr of{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, -1, O_CREAT};
  const Domain domain(ibv_open_xrcd(rig.context.get(), &of));
  REQUIRE(domain);
  auto attr = srq_attr(rig, IBV_EXP_SRQT_XRC);
  attr.comp_mask = IBV_EXP_CREATE_SRQ_CQ | IBV_EXP_CREATE_SRQ_XRCD;
  attr.cq = rig.cq.get();
  attr.xrcd = domain.get();
  std::vector<Srq> queues;
  for (int i = 0; i < 2; ++i) {
    attr.base.attr.max_wr = 10;
    queues.emplace_back(ibv_exp_create_srq(rig.context.get(), &attr));
    REQUIRE(queues.back());
    CHECK(attr.base.attr.max_wr > 10);  // what was granted
  }

  ibv_exp_qp_init_attr target{};
  target.qp_type = IBV_QPT_XRC_RECV;
  target.comp_mask = IBV_EXP_QP_INIT_ATTR_XRCD;
  target.xrcd = domain.get();
  Qp in(ibv_exp_create_qp(rig.context.get(), &target));
  REQUIRE(in);
  auto initiator = rig.qp_attr(IBV_QPT_XRC_SEND);
  initiator.cap.max_recv_wr = initiator.cap.max_recv_sge = 0;
  initiator.recv_cq = nullptr;
  Qp out(ibv_exp_create_qp(rig.context.get(), &initiator));
  REQUIRE(out);
  rig.connect(out.get(), in->qp_num);
  rig.connect(in.get(), out->qp_num);

  Buffer from(rig.pd.get(), 256), to(rig.pd.get(), 1024);
  std::iota(from.bytes.begin(), from.bytes.end(), std::uint8_t{9});
  for (std::size_t i : {1, 0, 1}) {
    std::fill(to.bytes.begin(), to.bytes.end(), std::uint8_t{0});
    post_shared(queues[i].get(), 7 + i, to.piece(i * 256, 256));
    auto piece = from.piece(0, 256);
    auto wr = request(1, IBV_EXP_WR_SEND, &piece);
    std::uint32_t number = 0;
    REQUIRE(ibv_get_srq_num(queues[i].get(), &number) == 0);
    wr.qp_type.xrc.remote_srqn = number;
    post(out.get(), wr);
    const auto got = both(rig).second;
    CHECK(got.wr_id == 7 + i);
    CHECK(std::memcmp(to.bytes.data() + i * 256, from.bytes.data(), 256) == 0);
  }
  SECTION("a target needs its domain") {
    target.comp_mask = IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS;
    errno = 0;
    CHECK(ibv_exp_create_qp(rig.context.get(), &target) == nullptr);
    CHECK(errno == EINVAL);
  }
}

namespace {

// A bound window of type 2 on the receiving side of a pair.
struct Bound : Rig {
  Qp a = create_qp(IBV_QPT_RC), b = create_qp(IBV_QPT_RC);
  Buffer out{pd.get(), 256}, in{pd.get(), 256};
  Window window{ibv_alloc_mw(pd.get(), IBV_MW_TYPE_2)};
  std::uint32_t key = 0;

  Bound() {
    REQUIRE(window);
    std::iota(out.bytes.begin(), out.bytes.end(), std::uint8_t{1});
    connect(a.get(), b->qp_num);
    connect(b.get(), a->qp_num);
    ibv_exp_reg_mr_in reg{};
    reg.pd = pd.get();
    reg.addr = in.bytes.data();
    reg.length = in.bytes.size();
    reg.exp_access =
        IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_REMOTE_WRITE | IBV_EXP_ACCESS_MW_BIND;
    in.mr.reset(ibv_exp_reg_mr(&reg));
    REQUIRE(in.mr);

    key = ibv_inc_rkey(window->rkey);
    auto wr = request(50, IBV_EXP_WR_BIND_MW, nullptr, 0);
    wr.bind_mw.mw = window.get();
    wr.bind_mw.rkey = key;
    wr.bind_mw.bind_info.mr = in.mr.get();
    wr.bind_mw.bind_info.addr = in.address();
    wr.bind_mw.bind_info.length = in.bytes.size();
    wr.bind_mw.bind_info.exp_mw_access_flags = IBV_EXP_ACCESS_REMOTE_WRITE;
    post(b.get(), wr);
    const auto wc = completions(1)[0];
    REQUIRE(wc.status == IBV_WC_SUCCESS);
    CHECK(wc.exp_opcode == IBV_EXP_WC_BIND_MW);
  }

  ibv_wc_status write() {
    auto piece = out.piece(0, 256);
    auto wr = request(1, IBV_EXP_WR_RDMA_WRITE, &piece);
    wr.wr.rdma.remote_addr = in.address();
    wr.wr.rdma.rkey = key;
    post(a.get(), wr);
    return completions(1)[0].status;
  }
};

}  // namespace

TEST_CASE("a send takes a key back [row:IBV_EXP_WR_SEND_WITH_INV]") {
  Bound p;
  REQUIRE(p.write() == IBV_WC_SUCCESS);
  CHECK(p.in.bytes == p.out.bytes);
  const int opcode = GENERATE(0x48, int{IBV_EXP_WR_SEND_WITH_INV});
  Buffer message(p.pd.get(), 64);
  post_receive(p.b.get(), 7, message.piece(0, 64));
  auto piece = p.out.piece(0, 64);
  auto wr = request(2, static_cast<ibv_exp_wr_opcode>(opcode), &piece);
  wr.ex.invalidate_rkey = p.key;
  post(p.a.get(), wr);
  const auto got = both(p).second;
  CHECK((got.exp_wc_flags & IBV_EXP_WC_WITH_INV) != 0);
  CHECK(got.imm_data == p.key);
  CHECK(p.write() == IBV_WC_REM_ACCESS_ERR);
}

TEST_CASE("an owner takes a key back [row:IBV_EXP_WR_LOCAL_INV]") {
  Bound p;
  REQUIRE(p.write() == IBV_WC_SUCCESS);
  const int opcode = GENERATE(0x4a, int{IBV_EXP_WR_LOCAL_INV});
  auto wr = request(2, static_cast<ibv_exp_wr_opcode>(opcode), nullptr, 0);
  wr.ex.invalidate_rkey = p.key;
  post(p.b.get(), wr);
  const auto wc = p.completions(1)[0];
  CHECK(wc.status == IBV_WC_SUCCESS);
  CHECK(wc.exp_opcode == IBV_EXP_WC_LOCAL_INV);
  CHECK(p.write() == IBV_WC_REM_ACCESS_ERR);
}
