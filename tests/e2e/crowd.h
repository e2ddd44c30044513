/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One of each kind of experimental object in the context, for programs that measure
 * whether others are slower beside them. They stay until the process ends.
 */
#ifndef CROWD_H
#define CROWD_H

#include "counting.h"

static inline struct ibv_cq *crowd_cq(uint32_t flags) {
  struct ibv_exp_cq_init_attr attr = {0};
  struct ibv_cq *made;

  attr.comp_mask = IBV_EXP_CQ_INIT_ATTR_FLAGS;
  attr.flags = flags;
  made = ibv_exp_create_cq(context, 64, NULL, NULL, 0, &attr);
  if (!made) die("ibv_exp_create_cq");
  return made;
}

static inline struct ibv_qp *crowd_qp(enum ibv_qp_type type, struct ibv_cq *on,
                                      struct ibv_srq *srq) {
  struct ibv_exp_qp_init_attr attr = {0};
  struct ibv_qp *made;

  attr.qp_type = type;
  attr.send_cq = attr.recv_cq = on;
  attr.srq = srq;
  attr.cap.max_send_wr = attr.cap.max_recv_wr = 16;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
  attr.comp_mask = IBV_EXP_QP_INIT_ATTR_PD;
  attr.pd = pd;
  if (type == IBV_QPT_RC) {
    attr.comp_mask |= IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS | IBV_EXP_QP_INIT_ATTR_MAX_INL_KLMS;
    attr.exp_create_flags = IBV_EXP_QP_CREATE_UMR;
    attr.max_inl_send_klms = 4;
  }
  made = ibv_exp_create_qp(context, &attr);
  if (!made) die("ibv_exp_create_qp");
  return made;
}

static inline void *query_family(enum ibv_exp_intf_family family, void *object) {
  struct ibv_exp_query_intf_params params = {0};
  enum ibv_exp_query_intf_status status;
  void *functions;

  params.intf_scope = IBV_EXP_INTF_GLOBAL;
  params.intf = family;
  params.obj = object;
  functions = ibv_exp_query_intf(context, &params, &status);
  if (!functions) die("ibv_exp_query_intf");
  return functions;
}

/* A multi-packet receive queue, where there is Ethernet. */
static inline void crowd_wq(void) {
  struct ibv_exp_wq_init_attr attr = {0};
  struct ibv_exp_wq *wq;

  attr.wq_type = IBV_EXP_WQT_RQ;
  attr.max_recv_wr = 4;
  attr.max_recv_sge = 1;
  attr.pd = pd;
  attr.cq = crowd_cq(0);
  attr.comp_mask = IBV_EXP_CREATE_WQ_MP_RQ;
  attr.mp_rq.single_wqe_log_num_of_strides = 9;
  attr.mp_rq.single_stride_log_num_of_bytes = 6;
  wq = ibv_exp_create_wq(context, &attr);
  if (!wq) die("ibv_exp_create_wq");
  query_family(IBV_EXP_INTF_WQ, wq);
  query_family(IBV_EXP_INTF_CQ, attr.cq);
}

/* A DC target, or null. */
static inline struct ibv_exp_dct *create_target(struct ibv_cq *on, struct ibv_srq *srq) {
  struct ibv_exp_dct_init_attr attr = {0};

  attr.pd = pd;
  attr.cq = on;
  attr.srq = srq;
  attr.port = 1;
  attr.mtu = IBV_MTU_1024;
  attr.gid_index = gid_index >= 0 ? (uint8_t)gid_index : 255;
  attr.hop_limit = 1;
  return ibv_exp_create_dct(context, &attr);
}

static inline void create_crowd(void) {
  struct ibv_srq_init_attr srq_attr = {0};
  struct ibv_port_attr port;
  const char *engine = getenv("IBVEXP_ENGINE");
  struct ibv_cq *plain = crowd_cq(0);
  struct ibv_srq *srq;
  struct ibv_qp *made;

  srq_attr.attr.max_wr = 16;
  srq_attr.attr.max_sge = 1;
  srq = ibv_create_srq(pd, &srq_attr);
  if (!srq) die("ibv_create_srq");
  check(ibv_query_port(context, 1, &port), "ibv_query_port");

  crowd_qp((enum ibv_qp_type)IBV_EXP_QPT_DC_INI, plain, srq);
  if (!create_target(plain, srq)) die("ibv_exp_create_dct");
  /* Takes keys. */
  crowd_qp(IBV_QPT_RC, plain, NULL);
  crowd_qp(IBV_QPT_RC, crowd_cq(IBV_EXP_CQ_TIMESTAMP), NULL);
  /* Not where libmlx5 polls. */
  if (!engine || strcmp(engine, "native") != 0)
    crowd_qp(IBV_QPT_RC, crowd_cq(IBV_EXP_CQ_COMPRESSED_CQE), NULL);
  made = crowd_qp(IBV_QPT_RC, crowd_cq(0), NULL);
  to_init(made);
  query_family(IBV_EXP_INTF_QP_BURST, made);
  query_family(IBV_EXP_INTF_CQ, made->send_cq);
  if (port.link_layer == IBV_LINK_LAYER_ETHERNET) {
    made = crowd_qp(IBV_QPT_RAW_PACKET, crowd_cq(0), NULL);
    to_init(made);
    query_family(IBV_EXP_INTF_QP_BURST, made);
    query_family(IBV_EXP_INTF_CQ, made->send_cq);
    crowd_wq();
  }
}

#endif
