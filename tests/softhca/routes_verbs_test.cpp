// Which states and addresses of queue pairs the kernel and the card accept from a program.
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>

#include "catch.h"
#include "owned.h"
#include "skip.h"

namespace {

using Qp = Owned<ibv_qp, ibv_destroy_qp>;
using Ah = Owned<ibv_ah, ibv_destroy_ah>;

constexpr int state_and_current = int{IBV_QP_STATE} | IBV_QP_CUR_STATE;

struct Device {
  Device() {
    ibv_device **list = ibv_get_device_list(nullptr);
    REQUIRE((list != nullptr && list[0] != nullptr));
    context.reset(ibv_open_device(list[0]));
    ibv_free_device_list(list);
    REQUIRE(context);
    pd.reset(ibv_alloc_pd(context.get()));
    cq.reset(ibv_create_cq(context.get(), 16, nullptr, nullptr, 0));
    REQUIRE((pd && cq));
    ibv_port_attr port{};
    REQUIRE(ibv_query_port(context.get(), 1, &port) == 0);
    ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
    lid = port.lid;
  }

  // From the source GID of that index to the GID of the other one.
  ibv_ah_attr path(uint8_t from, int to) const {
    ibv_ah_attr path{};
    path.port_num = 1;
    path.dlid = lid;
    path.is_global = ethernet;
    path.grh.sgid_index = from;
    path.grh.hop_limit = 1;
    if (ethernet) REQUIRE(ibv_query_gid(context.get(), 1, to, &path.grh.dgid) == 0);
    return path;
  }
  ibv_ah_attr path() const { return path(ethernet ? 1 : 0, 1); }

  Qp create(ibv_qp_type type) const {
    ibv_qp_init_attr attr{};
    attr.qp_type = type;
    attr.send_cq = attr.recv_cq = cq.get();
    attr.cap = {4, 4, 1, 1, 0};
    Qp qp(ibv_create_qp(pd.get(), &attr));
    REQUIRE(qp);
    ibv_qp_attr init{};
    init.qp_state = IBV_QPS_INIT;
    init.port_num = 1;
    REQUIRE(ibv_modify_qp(qp.get(), &init,
                          int{IBV_QP_STATE} | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                              (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)) == 0);
    return qp;
  }

  // To itself.
  static int ready_to_receive(ibv_qp *qp, const ibv_ah_attr &path) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = qp->qp_num;
    attr.ah_attr = path;
    int mask = IBV_QP_STATE;
    if (qp->qp_type != IBV_QPT_UD)
      mask |= int{IBV_QP_AV} | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (qp->qp_type == IBV_QPT_RC) mask |= int{IBV_QP_MAX_DEST_RD_ATOMIC} | IBV_QP_MIN_RNR_TIMER;
    return ibv_modify_qp(qp, &attr, mask);
  }
  static int ready_to_send(ibv_qp *qp) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = attr.rnr_retry = 7;
    int mask = int{IBV_QP_STATE} | IBV_QP_SQ_PSN;
    if (qp->qp_type == IBV_QPT_RC)
      mask |= int{IBV_QP_TIMEOUT} | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    return ibv_modify_qp(qp, &attr, mask);
  }

  Owned<ibv_context, ibv_close_device> context;
  Owned<ibv_pd, ibv_dealloc_pd> pd;
  Owned<ibv_cq, ibv_destroy_cq> cq;
  bool ethernet = false;
  uint16_t lid = 0;
};

int go(ibv_qp *qp, ibv_qp_state from, ibv_qp_state to) {
  ibv_qp_attr attr{};
  attr.cur_qp_state = from;
  attr.qp_state = to;
  return ibv_modify_qp(qp, &attr, state_and_current);
}

ibv_qp_state state_of(ibv_qp *qp) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  REQUIRE(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0);
  return attr.qp_state;
}

}  // namespace

TEST_CASE("A queue pair does not leave a state that it is not in", "[routes_verbs_test]") {
  const Device d;
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
    CAPTURE(type);
    const Qp qp = d.create(type);
    REQUIRE(d.ready_to_receive(qp.get(), d.path()) == 0);
    CHECK(go(qp.get(), IBV_QPS_RTS, IBV_QPS_RTS) == EINVAL);
    CHECK(state_of(qp.get()) == IBV_QPS_RTR);
    REQUIRE(d.ready_to_send(qp.get()) == 0);
    if (type != IBV_QPT_RC) CHECK(go(qp.get(), IBV_QPS_SQE, IBV_QPS_RTS) == EINVAL);
    CHECK(go(qp.get(), IBV_QPS_RTS, IBV_QPS_RTS) == 0);

    ibv_qp_attr error{};
    error.qp_state = IBV_QPS_ERR;
    REQUIRE(ibv_modify_qp(qp.get(), &error, IBV_QP_STATE) == 0);
    CHECK(go(qp.get(), IBV_QPS_RTS, IBV_QPS_RTS) == EINVAL);
    CHECK(state_of(qp.get()) == IBV_QPS_ERR);
  }
}

// 0: RoCE v1, 1: v2 with the address of the port itself; 2 and 3: v1 and v2 with its IPv4 address.
TEST_CASE("Both ends of a RoCE path have addresses of one kind", "[routes_verbs_test]") {
  const Device d;
  SKIP_IF(!d.ethernet, "it has to be Ethernet");
  const struct {
    uint8_t from;
    int to;
    bool resolved;
  } paths[] = {
      {0, 0, true}, {1, 1, true},  {3, 3, true},  {2, 2, true},
      {2, 0, true}, {3, 1, false}, {1, 3, false}, {0, 3, false},
  };
  for (const auto &p : paths) {
    CAPTURE(int{p.from}, p.to);
    ibv_ah_attr path = d.path(p.from, p.to);
    const Ah ah(ibv_create_ah(d.pd.get(), &path));
    CHECK(bool(ah) == p.resolved);
    if (!ah) CHECK(errno == EINVAL);
    const Qp qp = d.create(IBV_QPT_RC);
    CHECK(d.ready_to_receive(qp.get(), path) == (p.resolved ? 0 : EINVAL));
  }
}

TEST_CASE("ibv_query_qp reports of a path what the card keeps", "[routes_verbs_test]") {
  const Device d;
  const Qp qp = d.create(IBV_QPT_RC);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  REQUIRE(ibv_query_qp(qp.get(), &attr, IBV_QP_AV, &init) == 0);
  CHECK(attr.ah_attr.port_num == 1);
  CHECK(attr.ah_attr.is_global == d.ethernet);

  ibv_ah_attr path = d.path();
  path.sl = 0x35;
  path.src_path_bits = 0x83;
  path.dlid = 5;
  REQUIRE(d.ready_to_receive(qp.get(), path) == 0);
  REQUIRE(ibv_query_qp(qp.get(), &attr, IBV_QP_AV, &init) == 0);
  CHECK(attr.ah_attr.port_num == 1);
  CHECK(attr.ah_attr.sl == (d.ethernet ? 0 : 5));
  CHECK(attr.ah_attr.src_path_bits == (d.ethernet ? 0 : 3));
  CHECK(attr.ah_attr.dlid == (d.ethernet ? 0 : 5));
  CHECK(attr.ah_attr.is_global == d.ethernet);
}

TEST_CASE("A port says what packets need, and how fast they are", "[routes_verbs_test]") {
  const Device d;
  ibv_port_attr port{};
  REQUIRE(ibv_query_port(d.context.get(), 1, &port) == 0);
  CHECK(((port.flags & IBV_QPF_GRH_REQUIRED) != 0) == d.ethernet);
  CHECK((port.max_vl_num == 0) == d.ethernet);
  CHECK(int{port.active_width} == 2);   // 4 lanes
  CHECK(int{port.active_speed} == 32);  // of 25 Gb/s
}
