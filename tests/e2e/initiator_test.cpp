// DC initiators as programs of the legacy age bring them up: each request names its
// own address, so the one that comes with the queue pair's was left empty.
#include <skip.h>

#include "dc_rig.h"

namespace {

constexpr std::uint64_t to_init_mask =
    IBV_EXP_QP_STATE | IBV_EXP_QP_PKEY_INDEX | IBV_EXP_QP_PORT | IBV_EXP_QP_DC_KEY;
constexpr std::uint64_t to_rtr_mask = IBV_EXP_QP_STATE | IBV_EXP_QP_PATH_MTU | IBV_EXP_QP_AV;

Qp create(Dc &dc) {
  auto attr = dc.qp_attr(static_cast<ibv_qp_type>(IBV_EXP_QPT_DC_INI));
  attr.cap = {16, 0, 1, 0, 64};
  Qp made(ibv_exp_create_qp(dc.context.get(), &attr));
  REQUIRE(made);
  return made;
}

void init_by_experimental_verb(ibv_qp *dci, std::uint8_t port = 1) {
  ibv_exp_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = port;
  attr.dct_key = key;
  REQUIRE(ibv_exp_modify_qp(dci, &attr, to_init_mask) == 0);
}

void init_by_base_verb(ibv_qp *dci) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  REQUIRE(ibv_modify_qp(dci, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT) == 0);
}

// UCX 1.4's way: everything zero, but that a global address is meant on Ethernet.
ibv_exp_qp_attr empty_address(const Dc &dc) {
  ibv_exp_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.max_dest_rd_atomic = 1;
  attr.ah_attr.is_global = dc.ethernet();
  return attr;
}

// From RTR on, and a write to a target.
void works(Dc &dc, ibv_qp *dci) {
  ibv_exp_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = attr.rnr_retry = 7;
  attr.max_rd_atomic = 4;
  REQUIRE(ibv_exp_modify_qp(dci, &attr,
                            IBV_EXP_QP_STATE | IBV_EXP_QP_TIMEOUT | IBV_EXP_QP_RETRY_CNT |
                                IBV_EXP_QP_RNR_RETRY | IBV_EXP_QP_MAX_QP_RD_ATOMIC) == 0);
  const Dct dct = dc.make_dct();
  auto piece = dc.out.piece(0, Dc::size);
  auto wr = dc.to(dct.get(), IBV_EXP_WR_RDMA_WRITE, 1, &piece);
  dc.aim(wr);
  dc.post(dci, wr);
  CHECK(dc.take().status == IBV_WC_SUCCESS);
  CHECK(dc.in.bytes == dc.out.bytes);
}

}  // namespace

TEST_CASE("an initiator goes to RTR with an empty address [row:IBV_EXP_QP_AV]") {
  Dc dc;
  const Qp dci = create(dc);
  SECTION("after INIT by the experimental verb") { init_by_experimental_verb(dci.get()); }
  SECTION("after INIT by the base verb") { init_by_base_verb(dci.get()); }
  auto attr = empty_address(dc);
  REQUIRE(to_rtr_mask == 0x181);
  REQUIRE(ibv_exp_modify_qp(dci.get(), &attr, to_rtr_mask) == 0);
  CHECK(attr.ah_attr.port_num == 0);  // the program's own structure
  works(dc, dci.get());
}

TEST_CASE("so it does after a reset [row:IBV_EXP_QP_AV]") {
  Dc dc;
  const Qp dci = create(dc);
  for (int turn = 0; turn < 2; ++turn) {
    ibv_exp_qp_attr attr{};
    attr.qp_state = IBV_QPS_RESET;
    REQUIRE(ibv_exp_modify_qp(dci.get(), &attr, IBV_EXP_QP_STATE) == 0);
    init_by_experimental_verb(dci.get());
    attr = empty_address(dc);
    REQUIRE(ibv_exp_modify_qp(dci.get(), &attr, to_rtr_mask) == 0);
    std::ranges::fill(dc.in.bytes, 0);
    works(dc, dci.get());
  }
}

TEST_CASE("an initiator's address need not be one at all [row:IBV_EXP_QP_AV]") {
  Dc dc;
  const Qp dci = create(dc);
  init_by_experimental_verb(dci.get());
  auto attr = empty_address(dc);
  SECTION("without a GID, on Ethernet too") { attr.ah_attr.is_global = 0; }
  SECTION("with a GID that there is not") {
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.sgid_index = 250;
  }
  REQUIRE(ibv_exp_modify_qp(dci.get(), &attr, to_rtr_mask) == 0);
  works(dc, dci.get());
}

// What the interposed verb makes of it; a library that is loaded later has none.
#ifndef IBVEXP_EXTERN_CALLS
TEST_CASE("the base verb takes an initiator's empty address [row:IBV_EXP_QP_AV]") {
  Dc dc;
  const Qp dci = create(dc);
  init_by_base_verb(dci.get());
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.ah_attr.is_global = dc.ethernet();
  REQUIRE(ibv_modify_qp(dci.get(), &attr, IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_AV) == 0);
  works(dc, dci.get());
}
#endif

namespace {

ibv_qp_attr init_attr() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  return attr;
}
constexpr int init_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;

// A connection, by the experimental verb.
void give_port(ibv_qp *qp) {
  ibv_exp_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  REQUIRE(ibv_exp_modify_qp(qp, &attr, init_mask) == 0);
}

// A connection to its own port, whose number the address does not have.
ibv_qp_attr rtr_attr(ibv_context *context, std::uint32_t peer) {
  ibv_port_attr port{};
  REQUIRE(ibv_query_port(context, 1, &port) == 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer;
  attr.max_dest_rd_atomic = 1;
  attr.ah_attr.dlid = port.lid;
  if (port.link_layer == IBV_LINK_LAYER_ETHERNET) {
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.sgid_index = 1;
    REQUIRE(ibv_query_gid(context, 1, 1, &attr.ah_attr.grh.dgid) == 0);
  }
  return attr;
}
constexpr int rtr_mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                         IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

}  // namespace

TEST_CASE("an address without a port has that of INIT [row:IBV_EXP_QP_AV]") {
  Rig rig;
  const Qp qp = rig.create_qp(IBV_QPT_RC);
  ibv_qp_attr rtr = rtr_attr(rig.context.get(), qp->qp_num), now{};
  SECTION("by the experimental verb") {
    give_port(qp.get());
    ibv_exp_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = rtr.path_mtu;
    attr.dest_qp_num = rtr.dest_qp_num;
    attr.max_dest_rd_atomic = 1;
    attr.ah_attr = rtr.ah_attr;
    SECTION("with members of the base verb alone") {}
    SECTION("with a member that only it has") { attr.comp_mask = IBV_EXP_QP_ATTR_FLOW_ENTROPY; }
    REQUIRE(ibv_exp_modify_qp(qp.get(), &attr, rtr_mask) == 0);
    CHECK(attr.ah_attr.port_num == 0);  // the program's own structure
  }
#ifndef IBVEXP_EXTERN_CALLS
  SECTION("by the base verb") {
    ibv_qp_attr init = init_attr();
    REQUIRE(ibv_modify_qp(qp.get(), &init, init_mask) == 0);
    REQUIRE(ibv_modify_qp(qp.get(), &rtr, rtr_mask) == 0);
    CHECK(rtr.ah_attr.port_num == 0);
  }
#endif
  ibv_qp_init_attr unused{};
  REQUIRE(ibv_query_qp(qp.get(), &now, IBV_QP_AV, &unused) == 0);
  CHECK(now.ah_attr.port_num == 1);
}

TEST_CASE("without experimental verbs an address needs a port [row:IBV_EXP_QP_AV]") {
  const Context context = open_first();
  const Pd pd(ibv_alloc_pd(context.get()));
  const Cq cq(ibv_create_cq(context.get(), 4, nullptr, nullptr, 0));
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = cq.get();
  wanted.cap = {1, 1, 1, 1, 0};
  wanted.qp_type = IBV_QPT_RC;
  const Qp qp(ibv_create_qp(pd.get(), &wanted));
  REQUIRE(qp != nullptr);
  ibv_qp_attr attr = init_attr();
  REQUIRE(ibv_modify_qp(qp.get(), &attr, init_mask) == 0);
  attr = rtr_attr(context.get(), qp->qp_num);
  CHECK(ibv_modify_qp(qp.get(), &attr, rtr_mask) == EINVAL);
}

TEST_CASE("on Ethernet a connection needs a GID [row:IBV_EXP_QP_AV]") {
  Rig rig;
  ibv_port_attr port{};
  REQUIRE(ibv_query_port(rig.context.get(), 1, &port) == 0);
  SKIP_IF(port.link_layer != IBV_LINK_LAYER_ETHERNET, "the port is InfiniBand");
  const Qp qp = rig.create_qp(IBV_QPT_RC);
  give_port(qp.get());
  ibv_exp_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.max_dest_rd_atomic = 1;
  CHECK(ibv_exp_modify_qp(qp.get(), &attr, rtr_mask) == EINVAL);
}
