/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How legacy programs write their calls: must compile as C and as C++, without
 * a warning, whatever conversions it needs between enumerations, int and the
 * members' types. Never run. Compiled by header_alone.py.
 */
static inline int idioms_device(struct ibv_context *context) {
  struct ibv_exp_device_attr attr;
  struct ibv_exp_port_attr port;
  struct ibv_exp_gid_attr gid;
  int answers = 0;

  memset(&attr, 0, sizeof(attr));
  attr.comp_mask = IBV_EXP_DEVICE_ATTR_RESERVED - 1;
  attr.comp_mask_2 = IBV_EXP_DEVICE_ATTR_RESERVED_2 - 1;
  if (ibv_exp_query_device(context, &attr)) return -1;
  if (attr.comp_mask & IBV_EXP_DEVICE_ATTR_COMP_MASK_2) answers++;
  if (attr.exp_device_cap_flags & IBV_EXP_DEVICE_DC_TRANSPORT) answers++;
  if (attr.exp_device_cap_flags & IBV_EXP_DEVICE_SHARED_MR) answers++;
  if (ibv_is_qpt_supported(attr.tso_caps.supported_qpts, IBV_QPT_RAW_PACKET)) answers++;
  if (attr.exp_atomic_cap == IBV_EXP_ATOMIC_HCA_REPLY_BE) answers++;

  port.comp_mask = IBV_EXP_QUERY_PORT_ATTR_MASK1;
  port.mask1 = IBV_EXP_QUERY_PORT_STATE | IBV_EXP_QUERY_PORT_LINK_LAYER;
  if (!ibv_exp_query_port(context, 1, &port) && port.link_layer == IBV_LINK_LAYER_ETHERNET &&
      port.port_attr.state == IBV_PORT_ACTIVE)
    answers++;

  gid.comp_mask = IBV_EXP_QUERY_GID_ATTR_TYPE;
  if (!ibv_exp_query_gid_attr(context, 1, 0, &gid) && gid.type == IBV_EXP_ROCE_V2_GID_TYPE)
    answers++;
  if ((int)context->device->node_type == IBV_EXP_NODE_MIC) answers++;
  return answers;
}

static inline struct ibv_qp *idioms_qp(struct ibv_pd *pd, struct ibv_cq *cq) {
  struct ibv_exp_qp_init_attr attr;
  struct ibv_exp_qp_attr state;
  struct ibv_qp_init_attr base;
  struct ibv_qp *qp;

  memset(&attr, 0, sizeof(attr));
  attr.qp_type = IBV_EXP_QPT_DC_INI;
  attr.send_cq = attr.recv_cq = cq;
  attr.pd = pd;
  attr.comp_mask = IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS;
  attr.exp_create_flags = IBV_EXP_QP_CREATE_UMR | IBV_EXP_QP_CREATE_ATOMIC_BE_REPLY;
  attr.qpg.qpg_type = IBV_EXP_QPG_NONE;
  qp = ibv_exp_create_qp(pd->context, &attr);

  memset(&base, 0, sizeof(base));
  base.qp_type = IBV_QPT_XRC;
  if (base.qp_type != IBV_QPT_RAW_ETH) base.qp_type = attr.qp_type;

  memset(&state, 0, sizeof(state));
  state.qp_state = IBV_QPS_INIT;
  state.dct_key = 1;
  if (qp && ibv_exp_modify_qp(
                qp, &state,
                IBV_EXP_QP_STATE | IBV_EXP_QP_PKEY_INDEX | IBV_EXP_QP_PORT | IBV_EXP_QP_DC_KEY))
    return NULL;
  return qp;
}

static inline int idioms_post(struct ibv_qp *qp, struct ibv_ah *ah) {
  struct ibv_exp_send_wr wr, *bad;

  memset(&wr, 0, sizeof(wr));
  wr.exp_opcode = IBV_EXP_WR_EXT_MASKED_ATOMIC_CMP_AND_SWP;
  wr.exp_send_flags = IBV_EXP_SEND_SIGNALED | IBV_EXP_SEND_EXT_ATOMIC_INLINE;
  wr.exp_send_flags |= IBV_EXP_SEND_IP_CSUM;
  wr.ext_op.masked_atomics.log_arg_sz = 3;
  wr.ext_op.masked_atomics.wr_data.inline_data.op.cmp_swap.compare_mask = ~0ULL;
  wr.dc.ah = ah;
  wr.tso.mss = 1400;
  wr.xrc_remote_srq_num = 5;
  wr.qp_type.xrc.remote_srqn = 5;
  return ibv_exp_post_send(qp, &wr, &bad);
}

static inline int idioms_poll(struct ibv_context *context, struct ibv_cq *cq) {
  struct ibv_exp_wc wc[4];
  struct ibv_exp_cq_attr moderation;
  struct ibv_exp_cq_init_attr init;
  struct ibv_async_event event;
  int n;

  memset(&init, 0, sizeof(init));
  init.comp_mask = IBV_EXP_CQ_INIT_ATTR_FLAGS;
  init.flags = IBV_EXP_CQ_TIMESTAMP;
  if (!ibv_exp_create_cq(context, 64, NULL, NULL, 0, &init)) return -1;
  moderation.comp_mask = IBV_EXP_CQ_ATTR_MODERATION;
  moderation.moderation.cq_count = 16;
  if (ibv_exp_modify_cq(cq, &moderation, IBV_EXP_CQ_MODERATION)) return -1;
  n = ibv_exp_poll_cq(cq, 4, wc, sizeof(wc[0]));
  if (n > 0 && wc[0].exp_opcode == IBV_EXP_WC_RECV &&
      (wc[0].exp_wc_flags & IBV_EXP_WC_WITH_TIMESTAMP))
    n += wc[0].mp_wr.byte_len;
  if (!ibv_get_async_event(context, &event) &&
      ((int)event.event_type == IBV_EXP_EVENT_DCT_ACCESS_ERR ||
       ((unsigned int)event.event_type & IBV_XRC_QP_EVENT_FLAG)))
    n++;
  return n;
}

static inline struct ibv_mr *idioms_mr(struct ibv_pd *pd) {
  struct ibv_exp_reg_mr_in in;

  memset(&in, 0, sizeof(in));
  in.pd = pd;
  in.length = IBV_EXP_IMPLICIT_MR_SIZE;
  in.exp_access = IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_ON_DEMAND;
  in.exp_access |= IBV_EXP_ACCESS_RELAXED;
  in.comp_mask = IBV_EXP_REG_MR_CREATE_FLAGS;
  in.create_flags = IBV_EXP_REG_MR_CREATE_CONTIG;
  return ibv_exp_reg_mr(&in);
}

static inline struct ibv_exp_flow *idioms_flow(struct ibv_qp *qp) {
  struct {
    struct ibv_exp_flow_attr attr;
    struct ibv_exp_flow_spec_eth eth;
  } rule;

  memset(&rule, 0, sizeof(rule));
  rule.attr.type = IBV_EXP_FLOW_ATTR_NORMAL;
  rule.attr.size = sizeof(rule);
  rule.attr.num_of_specs = 1;
  rule.eth.type = IBV_EXP_FLOW_SPEC_ETH;
  rule.eth.size = sizeof(rule.eth);
  memset(rule.eth.mask.dst_mac, 0xff, ETHERNET_LL_SIZE);
  return ibv_exp_create_flow(qp, &rule.attr);
}

static inline int idioms_burst(struct ibv_context *context, struct ibv_qp *qp,
                               struct ibv_sge *sge) {
  struct ibv_exp_query_intf_params params;
  enum ibv_exp_query_intf_status status;
  struct ibv_exp_qp_burst_family_v1 *burst;

  memset(&params, 0, sizeof(params));
  params.intf_scope = IBV_EXP_INTF_GLOBAL;
  params.intf = IBV_EXP_INTF_QP_BURST;
  params.intf_version = 1;
  params.obj = qp;
  params.family_flags = IBV_EXP_QP_BURST_CREATE_ENABLE_MULTI_PACKET_SEND_WR;
  burst = (struct ibv_exp_qp_burst_family_v1 *)ibv_exp_query_intf(context, &params, &status);
  if (!burst || status != IBV_EXP_INTF_STAT_OK) return -1;
  return burst->send_burst(qp, sge, 1, IBV_EXP_QP_BURST_SIGNALED);
}

/* One table of all: nothing is unused. */
struct idioms {
  int (*device)(struct ibv_context *);
  struct ibv_qp *(*qp)(struct ibv_pd *, struct ibv_cq *);
  int (*post)(struct ibv_qp *, struct ibv_ah *);
  int (*poll)(struct ibv_context *, struct ibv_cq *);
  struct ibv_mr *(*mr)(struct ibv_pd *);
  struct ibv_exp_flow *(*flow)(struct ibv_qp *);
  int (*burst)(struct ibv_context *, struct ibv_qp *, struct ibv_sge *);
};
extern const struct idioms idioms;
const struct idioms idioms = {
    idioms_device, idioms_qp, idioms_post, idioms_poll, idioms_mr, idioms_flow, idioms_burst,
};
