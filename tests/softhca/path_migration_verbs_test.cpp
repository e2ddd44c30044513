// What programs that load a second path see: attributes, refusals and events. The second path is
// on the last port of the device, which may be the only one: its time-out is another, by which the
// test tells the paths apart.
#include <infiniband/verbs.h>
#include <poll.h>

#include <cerrno>
#include <cstdint>

#include "catch.h"

namespace {

struct Device {
  Device() {
    ibv_device **list = ibv_get_device_list(nullptr);
    REQUIRE((list != nullptr && list[0] != nullptr));
    ctx = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    REQUIRE(ctx != nullptr);
    pd = ibv_alloc_pd(ctx);
    cq = ibv_create_cq(ctx, 8, nullptr, nullptr, 0);
    REQUIRE((pd != nullptr && cq != nullptr));
    ibv_device_attr device{};
    REQUIRE(ibv_query_device(ctx, &device) == 0);
    other = device.phys_port_cnt;
    REQUIRE((other == 1 || other == 2));
    for (uint8_t n = 1; n <= other; ++n) {
      ibv_port_attr port{};
      REQUIRE(ibv_query_port(ctx, n, &port) == 0);
      lid[n] = port.lid;
    }
    mr = ibv_reg_mr(pd, memory, sizeof memory,
                    int{IBV_ACCESS_LOCAL_WRITE} | IBV_ACCESS_REMOTE_WRITE);
    REQUIRE(mr != nullptr);
  }
  ~Device() {
    CHECK(ibv_dereg_mr(mr) == 0);
    CHECK(ibv_destroy_cq(cq) == 0);
    CHECK(ibv_dealloc_pd(pd) == 0);
    CHECK(ibv_close_device(ctx) == 0);
  }
  ibv_context *ctx;
  ibv_pd *pd;
  ibv_cq *cq;
  ibv_mr *mr;
  uint8_t other = 0;
  uint16_t lid[3] = {};
  uint64_t memory[2] = {};
};

// Starts on port 1; its peer is on the port of the same number on both paths.
struct Rc {
  explicit Rc(Device &d) : d(d) {
    ibv_qp_init_attr init{};
    init.qp_type = IBV_QPT_RC;
    init.send_cq = init.recv_cq = d.cq;
    init.cap = {4, 4, 1, 1, 0};
    qp = ibv_create_qp(d.pd, &init);
    REQUIRE(qp != nullptr);
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_INIT;
    a.port_num = 1;
    a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    REQUIRE(ibv_modify_qp(
                qp, &a,
                int{IBV_QP_STATE} | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
  }
  ~Rc() { CHECK(ibv_destroy_qp(qp) == 0); }

  void other_path(ibv_qp_attr &a) const {
    a.alt_ah_attr.port_num = a.alt_port_num = d.other;
    a.alt_ah_attr.dlid = d.lid[d.other];
    a.alt_timeout = 13;
  }
  void connect(const Rc &peer) {
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = IBV_MTU_1024;
    a.dest_qp_num = peer.qp->qp_num;
    a.ah_attr.port_num = 1;
    a.ah_attr.dlid = d.lid[1];
    a.min_rnr_timer = 1;
    a.max_dest_rd_atomic = 1;
    REQUIRE(ibv_modify_qp(qp, &a,
                          int{IBV_QP_STATE} | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                              IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) ==
            0);
    a.qp_state = IBV_QPS_RTS;
    a.timeout = 14;
    a.retry_cnt = a.rnr_retry = 7;
    a.max_rd_atomic = 1;
    REQUIRE(ibv_modify_qp(qp, &a,
                          int{IBV_QP_STATE} | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
  }
  int migration(ibv_mig_state to) {
    ibv_qp_attr a{};
    a.path_mig_state = to;
    return ibv_modify_qp(qp, &a, IBV_QP_PATH_MIG_STATE);
  }
  int load() {
    ibv_qp_attr a{};
    other_path(a);
    a.path_mig_state = IBV_MIG_REARM;
    return ibv_modify_qp(qp, &a, int{IBV_QP_ALT_PATH} | IBV_QP_PATH_MIG_STATE);
  }
  ibv_qp_attr query() const {
    ibv_qp_attr a{};
    ibv_qp_init_attr init{};
    REQUIRE(ibv_query_qp(qp, &a, ~0 & 0x1fffff, &init) == 0);
    return a;
  }
  void write(uint64_t value) {
    d.memory[0] = value;
    ibv_sge sge{reinterpret_cast<uint64_t>(&d.memory[0]), sizeof value, d.mr->lkey};
    ibv_send_wr wr{}, *bad = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(&d.memory[1]);
    wr.wr.rdma.rkey = d.mr->rkey;
    REQUIRE(ibv_post_send(qp, &wr, &bad) == 0);
    ibv_wc wc{};
    int n = 0;
    while (n == 0) n = ibv_poll_cq(d.cq, 1, &wc);
    REQUIRE(n == 1);
    CHECK(wc.status == IBV_WC_SUCCESS);
    CHECK(d.memory[1] == value);
  }
  void expect(ibv_event_type type) const {
    pollfd p{d.ctx->async_fd, POLLIN, 0};
    REQUIRE(poll(&p, 1, 30000) == 1);
    ibv_async_event event{};
    REQUIRE(ibv_get_async_event(d.ctx, &event) == 0);
    CHECK(event.event_type == type);
    CHECK(event.element.qp == qp);
    ibv_ack_async_event(&event);
  }
  Device &d;
  ibv_qp *qp;
};

}  // namespace

TEST_CASE("A program loads another path, is armed, and moves both ends") {
  Device d;
  ibv_device_attr device{};
  REQUIRE(ibv_query_device(d.ctx, &device) == 0);
  CHECK((device.device_cap_flags & IBV_DEVICE_AUTO_PATH_MIG) != 0);

  Rc a(d), b(d);
  a.connect(b);
  b.connect(a);
  CHECK(a.query().path_mig_state == IBV_MIG_MIGRATED);
  REQUIRE(a.load() == 0);
  REQUIRE(b.load() == 0);
  CHECK(a.query().path_mig_state == IBV_MIG_REARM);
  a.write(1);
  CHECK(a.query().path_mig_state == IBV_MIG_ARMED);
  CHECK(b.query().path_mig_state == IBV_MIG_ARMED);

  REQUIRE(a.migration(IBV_MIG_MIGRATED) == 0);
  a.expect(IBV_EVENT_PATH_MIG);
  a.write(2);
  b.expect(IBV_EVENT_PATH_MIG);
  for (const Rc *end : {&a, &b}) {
    const ibv_qp_attr now = end->query();
    CHECK(now.path_mig_state == IBV_MIG_MIGRATED);
    CHECK(now.port_num == d.other);
    CHECK(now.ah_attr.dlid == d.lid[d.other]);
    CHECK(now.timeout == 13);
    CHECK(now.alt_port_num == 1);
    CHECK(now.alt_ah_attr.dlid == d.lid[1]);
    CHECK(now.alt_timeout == 14);
  }
}

TEST_CASE("Nothing is armed by software, nor without another path") {
  Device d;
  Rc a(d), b(d);
  a.connect(b);
  b.connect(a);
  CHECK(a.migration(IBV_MIG_REARM) == EINVAL);
  CHECK(a.migration(IBV_MIG_MIGRATED) == 0);
  REQUIRE(a.load() == 0);
  CHECK(a.migration(IBV_MIG_ARMED) == EINVAL);
  CHECK(a.query().path_mig_state == IBV_MIG_REARM);
  CHECK(a.migration(IBV_MIG_MIGRATED) == 0);
  CHECK(a.query().port_num == 1);
  CHECK(a.query().timeout == 14);
}
