/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Every verb that neither posts, polls nor is counted by create_bench.c, called a few times
 * with its usual arguments; verbs_bench.py counts the instructions.
 *
 *     calls_bench base|exp [-g GID_INDEX]
 */
#include <fcntl.h>
#include <infiniband/ofa_verbs.h>
#include <netinet/in.h>
#include <unistd.h>

#include "crowd.h"

/* No inlines: there when the library is. */
#pragma weak ibv_exp_get_device_list
#pragma weak ibv_exp_rereg_mr
#pragma weak ibv_open_xrc_domain
#pragma weak ibv_close_xrc_domain
#pragma weak ibv_create_xrc_srq
#pragma weak ibv_create_xrc_rcv_qp
#pragma weak ibv_modify_xrc_rcv_qp
#pragma weak ibv_query_xrc_rcv_qp
#pragma weak ibv_reg_xrc_rcv_qp
#pragma weak ibv_unreg_xrc_rcv_qp

#define COUNTED 4
#define BYTES 4096

static char bytes[2][BYTES] __attribute__((aligned(BYTES)));
static struct ibv_mr *mr, *changed;
static struct ibv_srq *srq;
static struct ibv_qp *rc, *ud, *raw;

struct call {
  const char *name;
  int (*call)(void);
  int (*after)(void); /* undoes it, uncounted; may be null */
};

/* Both ways. */

static struct ibv_device **devices;
static int free_devices(void) {
  ibv_free_device_list(devices);
  return 0;
}
static int get_devices(void) {
  devices = ibv_get_device_list(NULL);
  return devices ? 0 : errno;
}
static int get_exp_devices(void) {
  devices = ibv_exp_get_device_list(NULL);
  return devices ? 0 : errno;
}

static int query_port(void) {
  struct ibv_port_attr attr;

  return ibv_query_port(context, 1, &attr);
}
static int query_exp_port(void) {
  struct ibv_exp_port_attr attr = {0};

  attr.comp_mask = IBV_EXP_QUERY_PORT_ATTR_MASK1;
  attr.mask1 = IBV_EXP_QUERY_PORT_STATE;
  return ibv_exp_query_port(context, 1, &attr);
}

static int query_gid(void) {
  struct ibv_gid_entry entry;

  return ibv_query_gid_ex(context, 1, 0, &entry, 0);
}
static int query_exp_gid(void) {
  struct ibv_exp_gid_attr attr = {0};

  attr.comp_mask = IBV_EXP_QUERY_GID_ATTR_TYPE | IBV_EXP_QUERY_GID_ATTR_GID;
  return ibv_exp_query_gid_attr(context, 1, 0, &attr);
}

static int moderate(void) {
  struct ibv_modify_cq_attr attr = {IBV_CQ_ATTR_MODERATE, {4, 4}};

  return ibv_modify_cq(cq, &attr);
}
static int moderate_exp(void) {
  struct ibv_exp_cq_attr attr = {0};

  attr.comp_mask = IBV_EXP_CQ_ATTR_MODERATION;
  attr.moderation.cq_count = attr.moderation.cq_period = 4;
  return ibv_exp_modify_cq(cq, &attr, IBV_EXP_CQ_MODERATION);
}

static int query_exp_clock(void) {
  struct ibv_exp_values values = {0};
  const int error = ibv_exp_query_values(context, IBV_EXP_VALUES_HW_CLOCK, &values);

  return values.comp_mask == IBV_EXP_VALUES_HW_CLOCK ? error : ENOTSUP;
}

static int change_access(void) {
  return ibv_rereg_mr(changed, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE);
}
static int change_exp_access(void) {
  return ibv_exp_rereg_mr(changed, IBV_EXP_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
                          IBV_EXP_ACCESS_LOCAL_WRITE, NULL);
}

static struct ibv_mr *paged;
static int prefetch(void) {
  struct ibv_sge piece = {(uintptr_t)bytes[1], BYTES, paged->lkey};

  return ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &piece, 1);
}
static int prefetch_exp(void) {
  struct ibv_exp_prefetch_attr attr = {0, bytes[1], BYTES, 0};

  return ibv_exp_prefetch_mr(paged, &attr);
}

static struct ibv_dm *dm;
static int free_dm(void) { return ibv_free_dm(dm); }
static int alloc_dm(void) {
  struct ibv_alloc_dm_attr attr = {64, 0, 0};

  dm = ibv_alloc_dm(context, &attr);
  return dm ? 0 : errno;
}
static int copy_to_dm(void) { return ibv_memcpy_to_dm(dm, 0, bytes[0], 64); }
static struct ibv_exp_dm *exp_dm;
static int free_exp_dm(void) { return ibv_exp_free_dm(exp_dm); }
static int alloc_exp_dm(void) {
  struct ibv_exp_alloc_dm_attr attr = {64, 0};

  exp_dm = ibv_exp_alloc_dm(context, &attr);
  return exp_dm ? 0 : errno;
}
static int copy_to_exp_dm(void) {
  struct ibv_exp_memcpy_dm_attr attr = {IBV_EXP_DM_CPY_TO_DEVICE, bytes[0], 0, 64, 0};

  return ibv_exp_memcpy_dm(exp_dm, &attr);
}

static struct ibv_td *td;
static int free_td(void) { return ibv_dealloc_td(td); }
static int alloc_td(void) {
  struct ibv_td_init_attr attr = {0};

  td = ibv_alloc_td(context, &attr);
  return td ? 0 : errno;
}

/* Steering, of frames. */
struct rule {
  struct ibv_flow_attr attr;
  struct ibv_flow_spec_eth eth;
};
struct exp_rule {
  struct ibv_exp_flow_attr attr;
  struct ibv_exp_flow_spec_eth eth;
};
static struct ibv_flow *flow;
static int destroy_flow(void) { return ibv_destroy_flow(flow); }
static int create_flow(void) {
  struct rule rule = {0};

  rule.attr.size = sizeof(rule);
  rule.attr.num_of_specs = rule.attr.port = 1;
  rule.eth.type = IBV_FLOW_SPEC_ETH;
  rule.eth.size = sizeof(rule.eth);
  rule.eth.val.dst_mac[0] = 2;
  memset(rule.eth.mask.dst_mac, 0xff, 6);
  flow = ibv_create_flow(raw, &rule.attr);
  return flow ? 0 : errno;
}
static struct ibv_exp_flow *exp_flow;
static int destroy_exp_flow(void) { return ibv_exp_destroy_flow(exp_flow); }
static int create_exp_flow(void) {
  struct exp_rule rule = {0};

  rule.attr.size = sizeof(rule);
  rule.attr.num_of_specs = rule.attr.port = 1;
  rule.eth.type = IBV_EXP_FLOW_SPEC_ETH;
  rule.eth.size = sizeof(rule.eth);
  rule.eth.val.dst_mac[0] = 2;
  memset(rule.eth.mask.dst_mac, 0xff, 6);
  exp_flow = ibv_exp_create_flow(raw, &rule.attr);
  return exp_flow ? 0 : errno;
}

/* Work queues and their table. */
static struct ibv_wq *wq;
static int destroy_wq(void) { return ibv_destroy_wq(wq); }
static int create_wq(void) {
  struct ibv_wq_init_attr attr = {0};

  attr.wq_type = IBV_WQT_RQ;
  attr.max_wr = attr.max_sge = 1;
  attr.pd = pd;
  attr.cq = cq;
  wq = ibv_create_wq(context, &attr);
  return wq ? 0 : errno;
}
static int ready_wq(void) {
  struct ibv_wq_attr attr = {IBV_WQ_ATTR_STATE, IBV_WQS_RDY, 0, 0, 0};

  return ibv_modify_wq(wq, &attr);
}
static struct ibv_rwq_ind_table *table;
static int destroy_table(void) { return ibv_destroy_rwq_ind_table(table); }
static int create_table(void) {
  struct ibv_rwq_ind_table_init_attr attr = {0, &wq, 0};

  table = ibv_create_rwq_ind_table(context, &attr);
  return table ? 0 : errno;
}
static struct ibv_exp_wq *exp_wq;
static int destroy_exp_wq(void) { return ibv_exp_destroy_wq(exp_wq); }
static int create_exp_wq(void) {
  struct ibv_exp_wq_init_attr attr = {0};

  attr.wq_type = IBV_EXP_WQT_RQ;
  attr.max_recv_wr = attr.max_recv_sge = 1;
  attr.pd = pd;
  attr.cq = cq;
  exp_wq = ibv_exp_create_wq(context, &attr);
  return exp_wq ? 0 : errno;
}
static int ready_exp_wq(void) {
  struct ibv_exp_wq_attr attr = {0};

  attr.attr_mask = IBV_EXP_WQ_ATTR_STATE;
  attr.wq_state = IBV_EXP_WQS_RDY;
  return ibv_exp_modify_wq(exp_wq, &attr);
}
static struct ibv_exp_rwq_ind_table *exp_table;
static int destroy_exp_table(void) { return ibv_exp_destroy_rwq_ind_table(exp_table); }
static int create_exp_table(void) {
  struct ibv_exp_rwq_ind_table_init_attr attr = {pd, 0, &exp_wq, 0};

  exp_table = ibv_exp_create_rwq_ind_table(context, &attr);
  return exp_table ? 0 : errno;
}

/* XRC: rdma-core's, and what legacy programs call. */
static struct ibv_xrcd *xrcd;
static int close_xrcd(void) { return ibv_close_xrcd(xrcd); }
static int open_xrcd(void) {
  struct ibv_xrcd_init_attr attr = {IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, -1, O_CREAT};

  xrcd = ibv_open_xrcd(context, &attr);
  return xrcd ? 0 : errno;
}
static struct ibv_srq *xrc_srq;
static int destroy_xrc_srq(void) { return ibv_destroy_srq(xrc_srq); }
static int create_xrc_srq(void) {
  struct ibv_srq_init_attr_ex attr = {0};

  attr.attr.max_wr = attr.attr.max_sge = 1;
  attr.comp_mask =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  attr.srq_type = IBV_SRQT_XRC;
  attr.pd = pd;
  attr.xrcd = xrcd;
  attr.cq = cq;
  xrc_srq = ibv_create_srq_ex(context, &attr);
  return xrc_srq ? 0 : errno;
}
static int srq_number(void) {
  uint32_t number;

  return ibv_get_srq_num(xrc_srq, &number);
}
static struct ibv_qp *create_xrc_qp_in(struct ibv_xrcd *in) {
  struct ibv_qp_init_attr_ex attr = {0};

  attr.qp_type = IBV_QPT_XRC_RECV;
  attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  attr.xrcd = in;
  return ibv_create_qp_ex(context, &attr);
}
static struct ibv_qp *xrc_qp;
static int destroy_xrc_qp(void) { return ibv_destroy_qp(xrc_qp); }
static int create_xrc_qp(void) {
  xrc_qp = create_xrc_qp_in(xrcd);
  return xrc_qp ? 0 : errno;
}
/* Of a domain of its own, since it stays open: ibv_destroy_qp() makes libmlx5 free a doorbell
   record that an opened queue pair never had. */
static struct ibv_xrcd *lasting_xrcd;
static struct ibv_qp *lasting_qp;
static int open_xrc_qp(void) {
  struct ibv_qp_open_attr attr = {0};

  attr.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  attr.qp_num = lasting_qp->qp_num;
  attr.xrcd = lasting_xrcd;
  attr.qp_type = IBV_QPT_XRC_RECV;
  return ibv_open_qp(context, &attr) ? 0 : errno;
}
static struct ibv_xrc_domain *domain;
static int close_domain(void) { return ibv_close_xrc_domain(domain); }
static int open_domain(void) {
  domain = ibv_open_xrc_domain(context, -1, O_CREAT);
  return domain ? 0 : errno;
}
static int create_legacy_srq(void) {
  struct ibv_srq_init_attr attr = {0};

  attr.attr.max_wr = attr.attr.max_sge = 1;
  xrc_srq = ibv_create_xrc_srq(pd, domain, cq, &attr);
  return xrc_srq ? 0 : errno;
}
static uint32_t receiver;
static int unregister_receiver(void) { return ibv_unreg_xrc_rcv_qp(domain, receiver); }
static int create_receiver(void) {
  struct ibvexp_xrc_qp_init_attr attr = {{0}, domain};

  return ibv_create_xrc_rcv_qp(&attr.base, &receiver);
}
static int modify_receiver(void) {
  struct ibv_qp_attr attr = {0};

  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  return ibv_modify_xrc_rcv_qp(
      domain, receiver, &attr,
      IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);
}
static int query_receiver(void) {
  struct ibv_qp_attr attr;
  struct ibv_qp_init_attr init;

  return ibv_query_xrc_rcv_qp(domain, receiver, &attr, IBV_QP_STATE, &init);
}
static int register_receiver(void) { return ibv_reg_xrc_rcv_qp(domain, receiver); }

/* Base verbs alone. */

static int query_qp(void) {
  struct ibv_qp_attr attr;
  struct ibv_qp_init_attr init;

  return ibv_query_qp(rc, &attr, IBV_QP_STATE, &init);
}
static int query_srq(void) {
  struct ibv_srq_attr attr;

  return ibv_query_srq(srq, &attr);
}
static int limit_srq(void) {
  struct ibv_srq_attr attr = {0, 0, 1};

  return ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT);
}
static struct ibv_async_event event;
static int get_event(void) { return ibv_get_async_event(context, &event); }
static int acknowledge(void) {
  ibv_ack_async_event(&event);
  return 0;
}
/* Of its own: where a work queue of ibv_create_wq() completes, the library has two to resize. */
static struct ibv_cq *resized;
static int resize(void) {
  static int more;

  more = !more;
  return ibv_resize_cq(resized, more ? 255 : 127);
}
static union ibv_gid group;
static int attach(void) { return ibv_attach_mcast(ud, &group, 0xc001); }
static int detach(void) { return ibv_detach_mcast(ud, &group, 0xc001); }
static struct ibv_ah *replying;
static int destroy_replying(void) { return ibv_destroy_ah(replying); }
static int create_from_completion(void) {
  struct ibv_wc wc = {0};
  struct ibv_grh grh = {0};
  struct ibv_gid_entry entry;

  if (ibv_query_gid_ex(context, 1, (uint32_t)gid_index, &entry, 0)) return errno;
  grh.next_hdr = entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? IPPROTO_UDP : 0x1b;
  wc.wc_flags = IBV_WC_GRH;
  wc.slid = path.dlid;
  grh.version_tclass_flow = htobe32(6u << 28);
  grh.sgid = grh.dgid = path.grh.dgid;
  replying = ibv_create_ah_from_wc(pd, &wc, &grh, 1);
  return replying ? 0 : errno;
}
static int pace(void) {
  struct ibv_qp_rate_limit_attr attr = {1000, 0, 0, 0};

  return ibv_modify_qp_rate_limit(raw, &attr);
}

/* Experimental verbs alone. */

static int set_variable(void) { return ibv_exp_setenv(context, "MLX5_CQE_SIZE", "64", 1); }
static int use_own_variables(void) { return ibv_exp_use_priv_env(context); }
// The symbol, which programs call that were compiled without the inline.
uint64_t exported_ts_to_ns(struct ibv_exp_clock_info *info,
                           uint64_t ts) __asm__("ibv_exp_cqe_ts_to_ns") __attribute__((weak));
static int to_nanoseconds(void) {
  struct ibv_exp_clock_info info = {1, 1, 1, ~0ull, 1, 1, 0};

  return exported_ts_to_ns(&info, 2) == 0 ? EINVAL : 0;
}
static struct ibv_mr *key;
static int query_key(void) {
  struct ibv_exp_mkey_attr attr = {0};

  return ibv_exp_query_mkey(key, &attr);
}
static struct ibv_exp_dct *target;
static int query_target(void) {
  struct ibv_exp_dct_attr attr = {0};

  return ibv_exp_query_dct(target, &attr);
}
static int get_function(void) {
  return ibv_exp_get_provider_func(context, IBV_EXP_POST_SEND_FUNC) ? 0 : EINVAL;
}
static struct ibv_mw *window;
static int bind_window(void) {
  struct ibv_exp_mw_bind bind = {0};

  bind.qp = rc;
  bind.mw = window;
  bind.exp_send_flags = IBV_EXP_SEND_SIGNALED;
  bind.bind_info.mr = mr;
  bind.bind_info.addr = (uintptr_t)bytes[0];
  bind.bind_info.length = 64;
  bind.bind_info.exp_mw_access_flags = IBV_EXP_ACCESS_REMOTE_READ;
  return ibv_exp_bind_mw(&bind);
}
static int drain(void) {
  struct ibv_wc wc;

  while (ibv_poll_cq(cq, 1, &wc) == 0)
    ;
  return 0;
}

static const struct call of_base[] = {
    {"get-devices", get_devices, free_devices},
    {"query-port", query_port, NULL},
    {"query-gid", query_gid, NULL},
    {"moderate-cq", moderate, NULL},
    {"prefetch-mr", prefetch, NULL},
    {"alloc-dm", alloc_dm, NULL},
    {"copy-dm", copy_to_dm, NULL},
    {"free-dm", free_dm, NULL},
    {"alloc-domain", alloc_td, free_td},
    {"create-flow", create_flow, NULL},
    {"destroy-flow", destroy_flow, NULL},
    {"create-wq", create_wq, NULL},
    {"create-table", create_table, NULL},
    {"destroy-table", destroy_table, NULL},
    {"modify-wq", ready_wq, NULL},
    {"destroy-wq", destroy_wq, NULL},
    {"open-xrcd", open_xrcd, NULL},
    {"create-xrcsrq", create_xrc_srq, NULL},
    {"number-xrcsrq", srq_number, NULL},
    {"destroy-xrcsrq", destroy_xrc_srq, NULL},
    {"create-xrcqp", create_xrc_qp, NULL},
    {"open-xrcqp", open_xrc_qp, NULL},
    {"destroy-xrcqp", destroy_xrc_qp, NULL},
    {"close-xrcd", close_xrcd, NULL},
    {"change-mr", change_access, NULL},
    {"query-qp", query_qp, NULL},
    {"query-srq", query_srq, NULL},
    {"limit-srq", limit_srq, NULL},
    {"get-async", get_event, NULL},
    {"ack-async", acknowledge, NULL},
    {"resize-cq", resize, NULL},
    {"attach-group", attach, NULL},
    {"detach-group", detach, NULL},
    {"reply-ah", create_from_completion, destroy_replying},
    {"pace-qp", pace, NULL},
};
static const struct call of_exp[] = {
    {"get-devices", get_exp_devices, free_devices},
    {"query-port", query_exp_port, NULL},
    {"query-gid", query_exp_gid, NULL},
    {"moderate-cq", moderate_exp, NULL},
    {"query-clock", query_exp_clock, NULL},
    {"prefetch-mr", prefetch_exp, NULL},
    {"alloc-dm", alloc_exp_dm, NULL},
    {"copy-dm", copy_to_exp_dm, NULL},
    {"free-dm", free_exp_dm, NULL},
    {"create-flow", create_exp_flow, NULL},
    {"destroy-flow", destroy_exp_flow, NULL},
    {"create-wq", create_exp_wq, NULL},
    {"create-table", create_exp_table, NULL},
    {"destroy-table", destroy_exp_table, NULL},
    {"modify-wq", ready_exp_wq, NULL},
    {"destroy-wq", destroy_exp_wq, NULL},
    {"open-xrcd", open_domain, NULL},
    {"create-xrcsrq", create_legacy_srq, NULL},
    {"destroy-xrcsrq", destroy_xrc_srq, NULL},
    {"create-xrcqp", create_receiver, NULL},
    {"modify-xrcqp", modify_receiver, NULL},
    {"query-xrcqp", query_receiver, NULL},
    {"open-xrcqp", register_receiver, unregister_receiver},
    {"destroy-xrcqp", unregister_receiver, NULL},
    {"close-xrcd", close_domain, NULL},
    {"setenv-context", set_variable, NULL},
    {"private-context", use_own_variables, NULL},
    {"convert-clock", to_nanoseconds, NULL},
    {"query-key", query_key, NULL},
    {"query-dct", query_target, NULL},
    {"get-function", get_function, NULL},
    {"bind-window", bind_window, drain},
    {"change-mr", change_exp_access, NULL},
};

static struct ibv_qp *make(enum ibv_qp_type type) {
  struct ibv_qp_init_attr attr = {0};
  struct ibv_qp *made;

  attr.send_cq = attr.recv_cq = cq;
  attr.qp_type = type;
  attr.cap.max_send_wr = attr.cap.max_recv_wr = 16;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
  made = ibv_create_qp(pd, &attr);
  if (!made) die("ibv_create_qp");
  ready(made, made);
  return made;
}

static void create(int use_exp) {
  struct ibv_srq_init_attr attr = {0};
  struct ibv_exp_create_mr_in in = {0};

  cq = ibv_create_cq(context, 127, NULL, NULL, 0);
  resized = ibv_create_cq(context, 127, NULL, NULL, 0);
  if (!cq || !resized) die("ibv_create_cq");
  attr.attr.max_wr = 16;
  attr.attr.max_sge = 1;
  srq = ibv_create_srq(pd, &attr);
  if (!srq) die("ibv_create_srq");
  mr = ibv_reg_mr(pd, bytes[0], BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
  changed = ibv_reg_mr(pd, bytes[0], BYTES, 0);
  paged = ibv_reg_mr(pd, bytes[1], BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
  window = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
  if (!mr || !changed || !paged || !window) die("memory");
  rc = make(IBV_QPT_RC);
  ud = make(IBV_QPT_UD);
  raw = make(IBV_QPT_RAW_PACKET);
  group.raw[0] = 0xff;
  group.raw[1] = 0x0e;
  group.raw[15] = 1;
  if (!use_exp) {
    check(open_xrcd(), "ibv_open_xrcd");
    lasting_xrcd = xrcd;
    lasting_qp = create_xrc_qp_in(lasting_xrcd);
    if (!lasting_qp) die("ibv_create_qp_ex");
    return;
  }
  target = create_target(cq, srq);
  in.pd = pd;
  in.attr.max_klm_list_size = 4;
  in.attr.create_flags = IBV_EXP_MR_INDIRECT_KLMS;
  in.attr.exp_access_flags = IBV_EXP_ACCESS_LOCAL_WRITE;
  key = ibv_exp_create_mr(&in);
  if (!target || !key) die("experimental objects");
}

int main(int argc, char **argv) {
  const int use_exp = argc > 1 && !strcmp(argv[1], "exp");
  const struct call *const calls = use_exp ? of_exp : of_base;
  const size_t count =
      use_exp ? sizeof(of_exp) / sizeof(of_exp[0]) : sizeof(of_base) / sizeof(of_base[0]);
  size_t i;
  int round, error;

  expect(argc == 2 || (argc == 4 && !strcmp(argv[2], "-g")), "base|exp [-g GID_INDEX]");
  if (argc == 4) gid_index = atoi(argv[3]);
  open_device();
  create(use_exp);
  count_harness();
  for (round = 0; round < COUNTED; ++round) {
    for (i = 0; i < count; ++i) {
      begin();
      error = calls[i].call();
      end("call", calls[i].name, 1);
      check(error, calls[i].name);
      if (calls[i].after) check(calls[i].after(), calls[i].name);
    }
  }
  return 0;
}
