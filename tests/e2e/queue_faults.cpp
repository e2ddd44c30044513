// Faults under the verbs whose objects complete on one queue: queue pairs of both doors, a
// shared receive queue, DC, XRC of both ages, resizing.
#include <fcntl.h>
#include <infiniband/ofa_verbs.h>
#include <sched.h>

#include "fault_harness.h"

namespace {

constexpr std::uint64_t dc_key = 0x1122334455667788;

// With the switch key_violations.
const char *const beyond = std::getenv("IBVEXP_BEYOND");
const bool armed = beyond != nullptr && std::strstr(beyond, "key_violations") != nullptr;

struct Scenario {
  ibv_context *context = nullptr;
  ibv_port_attr port{};
  ibv_gid gid{};
  ibv_pd *pd = nullptr;
  ibv_mr *mr = nullptr;
  ibv_cq *cq = nullptr;
  ibv_srq *srq = nullptr;
  ibv_ah *ah = nullptr;
  alignas(4096) unsigned char bytes[4096];

  bool ethernet() const { return port.link_layer == IBV_LINK_LAYER_ETHERNET; }
  ibv_sge piece(std::size_t at, std::uint32_t length) const {
    return {reinterpret_cast<std::uintptr_t>(bytes) + at, length, mr->lkey};
  }

  void open() {
    ibv_device **list = list_devices();
    opening = true;
    context = make<ibv_context>("ibv_open_device", [&] { return ibv_open_device(list[0]); });
    opening = false;
    std::fputs(opened, stderr);
    ibv_free_device_list(list);
    attempt("ibv_query_port", [&] { return ibv_query_port(context, 1, &port); });
    attempt("ibv_query_gid",
            [&] { return ibv_query_gid(context, 1, ethernet() ? 1 : 0, &gid) == 0 ? 0 : errno; });
    pd = make<ibv_pd>("ibv_alloc_pd", [&] { return ibv_alloc_pd(context); });
    mr = make<ibv_mr>("ibv_reg_mr", [&] {
      return ibv_reg_mr(pd, bytes, sizeof(bytes),
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                            IBV_ACCESS_REMOTE_ATOMIC);
    });
    cq = make<ibv_cq>("ibv_create_cq",
                      [&] { return ibv_create_cq(context, 64, nullptr, nullptr, 0); });
    ibv_srq_init_attr shared{nullptr, {8, 1, 0}};
    srq = make<ibv_srq>("ibv_create_srq", [&] { return ibv_create_srq(pd, &shared); });
    ibv_ah_attr to = address();
    ah = make<ibv_ah>("ibv_create_ah", [&] { return ibv_create_ah(pd, &to); });
  }

  ibv_ah_attr address() const {
    ibv_ah_attr to{};
    to.port_num = 1;
    to.dlid = port.lid;
    to.is_global = ethernet();
    to.grh.dgid = gid;
    to.grh.sgid_index = ethernet() ? 1 : 0;
    to.grh.hop_limit = 1;
    return to;
  }

  void complete(int wanted) {
    for (int done = 0; done < wanted;) {
      ibv_exp_wc wc{};
      const int n = ibv_exp_poll_cq(cq, 1, &wc, sizeof(wc));
      if (n < 0 || (n == 1 && wc.status != IBV_WC_SUCCESS))
        give_up("completion", static_cast<int>(wc.status));
      done += n;
      if (n == 0) sched_yield();
    }
  }

  void receive(ibv_srq *into) {
    ibv_sge room = piece(2048, 64);
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.sg_list = &room;
    wr.num_sge = 1;
    attempt("ibv_post_srq_recv", [&] { return ibv_post_srq_recv(into, &wr, &bad); });
  }

  template <class Modify>
  void connect(std::uint32_t peer, bool sender, Modify modify) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    attempt("to INIT", [&] {
      return modify(attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    });
    attr = {};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 12;
    attr.ah_attr = address();
    attempt("to RTR", [&] {
      return modify(attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                              IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    });
    if (!sender) return;
    attr = {};
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = attr.rnr_retry = 7;
    attr.max_rd_atomic = 1;
    attempt("to RTS", [&] {
      return modify(attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    });
  }
  void connect(ibv_qp *qp, std::uint32_t peer) {
    connect(peer, true,
            [=](ibv_qp_attr &attr, int mask) { return ibv_modify_qp(qp, &attr, mask); });
  }

  void send(ibv_qp *from, ibv_exp_send_wr wr = {}) {
    ibv_sge data = piece(0, 64);
    ibv_exp_send_wr *bad = nullptr;
    wr.sg_list = &data;
    wr.num_sge = 1;
    wr.exp_opcode = IBV_EXP_WR_SEND;
    wr.exp_send_flags = IBV_EXP_SEND_SIGNALED;
    attempt("ibv_exp_post_send", [&] { return ibv_exp_post_send(from, &wr, &bad); });
  }

  ibv_qp *exp_qp(ibv_qp_type type, ibv_srq *receives) {
    ibv_exp_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.srq = receives;
    attr.cap = {8, 0, 1, 0, 64};
    attr.qp_type = type;
    attr.comp_mask = IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS;
    attr.pd = pd;
    return make<ibv_qp>("ibv_exp_create_qp", [&] { return ibv_exp_create_qp(context, &attr); });
  }

  void destroy(ibv_qp *qp) {
    attempt("ibv_destroy_qp", [&] { return ibv_destroy_qp(qp); });
  }

  // One of each door.
  void connected() {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.srq = srq;
    init.cap = {8, 0, 1, 0, 64};
    init.qp_type = IBV_QPT_RC;
    ibv_qp *base = make<ibv_qp>("ibv_create_qp", [&] { return ibv_create_qp(pd, &init); });
    ibv_qp *exp = exp_qp(IBV_QPT_RC, srq);
    connect(base, exp->qp_num);
    connect(exp, base->qp_num);
    receive(srq);
    send(exp);
    // With unread completions in it.
    attempt("ibv_resize_cq", [&] {
      const int error = ibv_resize_cq(cq, 200);
      return error < 0 ? errno : error;  // of libmlx5, either
    });
    complete(2);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RESET;
    attempt("to RESET", [&] { return ibv_modify_qp(base, &attr, IBV_QP_STATE); });
    destroy(base);
    destroy(exp);
  }

  void dynamic() {
    ibv_exp_dct_init_attr attr{};
    attr.pd = pd;
    attr.cq = cq;
    attr.srq = srq;
    attr.dc_key = dc_key;
    attr.port = 1;
    attr.access_flags = IBV_ACCESS_REMOTE_WRITE;
    attr.min_rnr_timer = 2;
    attr.mtu = IBV_MTU_1024;
    attr.gid_index = ethernet() ? 1 : 255;
    attr.hop_limit = ethernet() ? 1 : 0;
    ibv_exp_dct *dct =
        make<ibv_exp_dct>("ibv_exp_create_dct", [&] { return ibv_exp_create_dct(context, &attr); });
    if (armed) {
      ibv_exp_arm_attr arm{};
      attempt("ibv_exp_arm_dct", [&] { return ibv_exp_arm_dct(dct, &arm); });
    }
    ibv_qp *dci = exp_qp(static_cast<ibv_qp_type>(IBV_EXP_QPT_DC_INI), nullptr);
    ibv_exp_qp_attr to{};
    to.qp_state = IBV_QPS_INIT;
    to.port_num = 1;
    to.dct_key = dc_key;
    attempt("to INIT", [&] {
      return ibv_exp_modify_qp(
          dci, &to, IBV_EXP_QP_STATE | IBV_EXP_QP_PKEY_INDEX | IBV_EXP_QP_PORT | IBV_EXP_QP_DC_KEY);
    });
    to = {};
    to.qp_state = IBV_QPS_RTR;
    to.path_mtu = IBV_MTU_1024;
    to.ah_attr = address();
    attempt("to RTR", [&] {
      return ibv_exp_modify_qp(dci, &to, IBV_EXP_QP_STATE | IBV_EXP_QP_PATH_MTU | IBV_EXP_QP_AV);
    });
    to = {};
    to.qp_state = IBV_QPS_RTS;
    to.timeout = 14;
    to.retry_cnt = to.rnr_retry = 7;
    to.max_rd_atomic = 1;
    attempt("to RTS", [&] {
      return ibv_exp_modify_qp(dci, &to,
                               IBV_EXP_QP_STATE | IBV_EXP_QP_TIMEOUT | IBV_EXP_QP_RETRY_CNT |
                                   IBV_EXP_QP_RNR_RETRY | IBV_EXP_QP_MAX_QP_RD_ATOMIC);
    });
    receive(srq);
    ibv_exp_send_wr wr{};
    wr.dc.ah = ah;
    wr.dc.dct_number = dct->dct_num;
    wr.dc.dct_access_key = dc_key;
    send(dci, wr);
    complete(2);
    attempt("ibv_exp_destroy_dct", [&] { return ibv_exp_destroy_dct(dct); });
    destroy(dci);
  }

  void extended() {
    ibv_xrc_domain *domain = make<ibv_xrc_domain>(
        "ibv_open_xrc_domain", [&] { return ibv_open_xrc_domain(context, -1, O_CREAT); });
    ibv_srq_init_attr init{nullptr, {8, 1, 0}};
    ibv_srq *old = make<ibv_srq>("ibv_create_xrc_srq",
                                 [&] { return ibv_create_xrc_srq(pd, domain, cq, &init); });
    ibv_exp_create_srq_attr attr{};
    attr.base.attr = {8, 1, 0};
    attr.comp_mask = IBV_EXP_CREATE_SRQ_CQ | IBV_EXP_CREATE_SRQ_XRCD;
    attr.srq_type = IBV_EXP_SRQT_XRC;
    attr.pd = pd;
    attr.xrcd = reinterpret_cast<ibv_xrcd *>(domain);
    attr.cq = cq;
    ibv_srq *exp =
        make<ibv_srq>("ibv_exp_create_srq", [&] { return ibv_exp_create_srq(context, &attr); });
    ibvexp_xrc_qp_init_attr of{};
    of.base.qp_type = static_cast<ibv_qp_type>(IBV_QPT_XRC);
    of.xrc_domain = domain;
    std::uint32_t number = 0, queue = 0;
    attempt("ibv_create_xrc_rcv_qp", [&] {
      const int error = ibv_create_xrc_rcv_qp(&of.base, &number);
      return error < 0 ? errno : error;
    });
    ibv_qp *sender = exp_qp(static_cast<ibv_qp_type>(IBV_QPT_XRC), nullptr);
    connect(number ? sender->qp_num : 0, false, [&](ibv_qp_attr &to, int mask) {
      return ibv_modify_xrc_rcv_qp(domain, number, &to, mask);
    });
    connect(sender, number);
    for (ibv_srq *each : {old, exp}) {
      receive(each);
      attempt("ibv_get_srq_num", [&] { return ibv_get_srq_num(each, &queue); });
      ibv_exp_send_wr wr{};
      wr.xrc_remote_srq_num = queue;
      send(sender, wr);
      complete(2);
    }
    destroy(sender);
    attempt("ibv_unreg_xrc_rcv_qp", [&] { return ibv_unreg_xrc_rcv_qp(domain, number); });
    for (ibv_srq *each : {old, exp})
      attempt("ibv_destroy_srq", [&] { return ibv_destroy_srq(each); });
    attempt("ibv_close_xrc_domain", [&] { return ibv_close_xrc_domain(domain); });
  }

  void close() {
    attempt("ibv_destroy_ah", [&] { return ibv_destroy_ah(ah); });
    attempt("ibv_destroy_srq", [&] { return ibv_destroy_srq(srq); });
    attempt("ibv_destroy_cq", [&] { return ibv_destroy_cq(cq); });
    attempt("ibv_dereg_mr", [&] { return ibv_dereg_mr(mr); });
    // EBUSY if anything was left behind.
    attempt("ibv_dealloc_pd", [&] { return ibv_dealloc_pd(pd); });
    attempt("ibv_close_device", [&] { return ibv_close_device(context); });
  }

  void run() {
    open();
    connected();
    dynamic();
    extended();
    close();
  }
};

Scenario scenario;

// Whatever fails of ours while a device is opened: it is opened in one way or another, or
// not at all, and what is made there can be used. None lacks experimental verbs.
void open_in_need() {
  find_libraries();
  ibv_device **list = ibv_get_device_list(nullptr);
  long number = 0;
  only_ours = true;
  do {
    fired = false;
    countdown = number++;
    ibv_context *context = ibv_open_device(list[0]);
    countdown = -1;
    if (context == nullptr) {
      if (errno != ENOMEM) give_up("opening in need", errno);
      continue;
    }
    ibv_exp_device_attr device{};
    if (const int error = ibv_exp_query_device(context, &device))
      give_up("ibv_exp_query_device of a device that opened in need", error);
    ibv_pd *pd = ibv_alloc_pd(context);
    ibv_cq *cq = ibv_create_cq(context, 8, nullptr, nullptr, 0);
    if (cq == nullptr) give_up("a completion queue of a device that opened in need", errno);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.cap = {8, 8, 1, 1, 0};
    init.qp_type = IBV_QPT_RC;
    ibv_qp *qp = ibv_create_qp(pd, &init);
    if (qp == nullptr) give_up("a queue pair of a device that opened in need", errno);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    if (ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0)
      give_up("ibv_modify_qp on a device that opened in need", errno);
    ibv_recv_wr wr{}, *bad = nullptr;
    ibv_wc wc;
    if (const int error = ibv_post_recv(qp, &wr, &bad))
      give_up("ibv_post_recv on a device that opened in need", error);
    if (ibv_req_notify_cq(cq, 0) != 0 || ibv_poll_cq(cq, 1, &wc) != 0)
      give_up("a completion queue of a device that opened in need", errno);
    if (ibv_destroy_qp(qp) != 0 || ibv_destroy_cq(cq) != 0 || ibv_dealloc_pd(pd) != 0 ||
        ibv_close_device(context) != 0)
      give_up("the end of a device that opened in need", errno);
  } while (fired);
  only_ours = false;
  ibv_free_device_list(list);
  std::printf("%ld allocations of opening failed in turn\n", number - 1);
}

}  // namespace

int main(int argc, char **argv) {
  if (argc > 1 && std::strcmp(argv[1], "allocations") == 0) open_in_need();
  return fault_main(argc, argv, [] { scenario.run(); });
}
