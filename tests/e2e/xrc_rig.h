// A sender, a receiver and memory of one process, for tests of the XRC transport.
#pragma once

#include <fcntl.h>

#include "rig.h"

// Drives a queue pair up, by modify(attributes, mask).
template <class Modify>
void join(ibv_context *context, std::uint32_t peer, bool sender, Modify modify) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  REQUIRE(modify(attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
  attr = {};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer;
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = 12;
  attr.ah_attr = path_to_self(context);
  REQUIRE(modify(attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                           IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
  if (!sender) return;
  attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = attr.rnr_retry = 7;
  attr.max_rd_atomic = 1;
  REQUIRE(modify(attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                           IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

// rdma-core's is a static function, which no type of a header can name.
inline int close_domain(ibv_xrcd *domain) { return ibv_close_xrcd(domain); }
using Xrcd = Owned<ibv_xrcd, close_domain>;
using Srq = Owned<ibv_srq, ibv_destroy_srq>;

struct Xrc : Rig {
  Xrcd domain = open_domain();
  Srq srq = make_srq();
  Qp target = make_target();
  Buffer out{pd.get(), 4096}, in{pd.get(), 4096};

  Xrcd open_domain() {
    ibv_xrcd_init_attr attr{};
    attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    attr.fd = -1;
    attr.oflags = O_CREAT;
    Xrcd made(ibv_open_xrcd(context.get(), &attr));
    REQUIRE(made);
    return made;
  }
  Srq make_srq() {
    ibv_srq_init_attr_ex attr{};
    attr.attr.max_wr = 16;
    attr.attr.max_sge = 1;
    attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ |
                     IBV_SRQ_INIT_ATTR_PD;
    attr.srq_type = IBV_SRQT_XRC;
    attr.xrcd = domain.get();
    attr.cq = cq.get();
    attr.pd = pd.get();
    Srq made(ibv_create_srq_ex(context.get(), &attr));
    REQUIRE(made);
    return made;
  }
  Qp make_target() {
    ibv_exp_qp_init_attr attr{};
    attr.qp_type = IBV_QPT_XRC_RECV;
    attr.comp_mask = IBV_EXP_QP_INIT_ATTR_XRCD;
    attr.xrcd = domain.get();
    Qp made(ibv_exp_create_qp(context.get(), &attr));
    REQUIRE(made);
    return made;
  }

  void join(ibv_qp *qp, std::uint32_t peer, bool sender) {
    ::join(context.get(), peer, sender,
           [=](ibv_qp_attr &attr, int mask) { return ibv_modify_qp(qp, &attr, mask); });
  }
};
