/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A DC target that watches its access key, in the style of programs written for MLNX_OFED. A friend
 * writes with the right key. A stranger tries others: an armed target reports the first of them by
 * an event, counts all, and reports the next when it is armed again.
 *
 *   exp_keys [-g GID_INDEX]
 */
#include <fcntl.h>

#include "loopback.h"

#define DC_KEY 0x5ec2e7ull
enum { rounds = 3, bytes = 64 };

static struct ibv_port_attr port;
static struct ibv_exp_dct *dct;
static struct ibv_qp *dci;
static struct ibv_ah *ah;
static uint8_t from[bytes], to[bytes];
static struct ibv_mr *from_mr, *to_mr;

static void create_target(struct ibv_srq *srq) {
  struct ibv_exp_dct_init_attr attr;

  memset(&attr, 0, sizeof(attr));
  attr.pd = pd;
  attr.cq = cq;
  attr.srq = srq;
  attr.dc_key = DC_KEY;
  attr.port = 1;
  attr.access_flags = IBV_ACCESS_REMOTE_WRITE;
  attr.min_rnr_timer = 2;
  attr.mtu = IBV_MTU_1024;
  attr.gid_index = gid_index >= 0 ? (uint8_t)gid_index : 255;
  attr.hop_limit = gid_index >= 0;
  dct = ibv_exp_create_dct(context, &attr);
  if (!dct) die("ibv_exp_create_dct");
}

static void create_initiator(void) {
  struct ibv_exp_qp_init_attr attr;
  struct ibv_ah_attr where;

  memset(&attr, 0, sizeof(attr));
  attr.send_cq = attr.recv_cq = cq;
  attr.cap.max_send_wr = attr.cap.max_send_sge = 1;
  attr.qp_type = IBV_EXP_QPT_DC_INI;
  attr.comp_mask = IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS;
  attr.pd = pd;
  dci = ibv_exp_create_qp(context, &attr);
  if (!dci) die("ibv_exp_create_qp");
  memset(&where, 0, sizeof(where));
  where.port_num = 1;
  where.dlid = port.lid;
  if (gid_index >= 0) {
    where.is_global = 1;
    where.grh.sgid_index = (uint8_t)gid_index;
    where.grh.hop_limit = 1;
    check(ibv_query_gid(context, 1, gid_index, &where.grh.dgid), "GID");
  }
  ah = ibv_create_ah(pd, &where);
  if (!ah) die("ibv_create_ah");
}

/* Also after an error. */
static void ready(void) {
  struct ibv_exp_qp_attr attr;

  memset(&attr, 0, sizeof(attr));
  attr.qp_state = IBV_QPS_RESET;
  check(ibv_exp_modify_qp(dci, &attr, IBV_EXP_QP_STATE), "to RESET");
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.dct_key = DC_KEY;
  check(ibv_exp_modify_qp(
            dci, &attr,
            IBV_EXP_QP_STATE | IBV_EXP_QP_PKEY_INDEX | IBV_EXP_QP_PORT | IBV_EXP_QP_DC_KEY),
        "to INIT");
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.dlid = port.lid;
  attr.ah_attr.is_global = gid_index >= 0;
  attr.ah_attr.grh.sgid_index = gid_index >= 0 ? (uint8_t)gid_index : 0;
  check(ibv_exp_modify_qp(dci, &attr, IBV_EXP_QP_STATE | IBV_EXP_QP_PATH_MTU | IBV_EXP_QP_AV),
        "to RTR");
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = attr.rnr_retry = 7;
  attr.max_rd_atomic = 1;
  check(ibv_exp_modify_qp(dci, &attr,
                          IBV_EXP_QP_STATE | IBV_EXP_QP_TIMEOUT | IBV_EXP_QP_RETRY_CNT |
                              IBV_EXP_QP_RNR_RETRY | IBV_EXP_QP_MAX_QP_RD_ATOMIC),
        "to RTS");
}

static enum ibv_wc_status put(uint64_t key) {
  struct ibv_sge sge = {(uintptr_t)from, bytes, from_mr->lkey};
  struct ibv_exp_send_wr wr, *bad;
  struct ibv_exp_wc wc;
  int n;

  memset(&wr, 0, sizeof(wr));
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.exp_opcode = IBV_EXP_WR_RDMA_WRITE;
  wr.exp_send_flags = IBV_EXP_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = (uintptr_t)to;
  wr.wr.rdma.rkey = to_mr->rkey;
  wr.dc.ah = ah;
  wr.dc.dct_number = dct->dct_num;
  wr.dc.dct_access_key = key;
  check(ibv_exp_post_send(dci, &wr, &bad), "ibv_exp_post_send");
  do n = ibv_exp_poll_cq(cq, 1, &wc, sizeof(wc));
  while (n == 0);
  expect(n == 1, "ibv_exp_poll_cq");
  return wc.status;
}

static void arm(void) {
  struct ibv_exp_arm_attr attr = {0};

  check(ibv_exp_arm_dct(dct, &attr), "ibv_exp_arm_dct");
}

/* How many there are about the key of the target. */
static int reports(void) {
  struct ibv_async_event event;
  int n = 0;

  while (!ibv_get_async_event(context, &event)) {
    /* element.dct, which headers of rdma-core do not have */
    if ((int)event.event_type == IBV_EXP_EVENT_DCT_KEY_VIOLATION)
      n += (void *)event.element.qp == (void *)dct;
    ibv_ack_async_event(&event);
  }
  expect(errno == EAGAIN, "ibv_get_async_event");
  return n;
}

static uint32_t count(void) {
  struct ibv_exp_dct_attr attr;

  memset(&attr, 0, sizeof(attr));
  check(ibv_exp_query_dct(dct, &attr), "ibv_exp_query_dct");
  return attr.key_violations;
}

int main(int argc, char **argv) {
  struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = 1, .max_sge = 1}};
  struct ibv_srq *srq;
  uint32_t before;
  int i;

  start(argc, argv);
  check(ibv_query_port(context, 1, &port), "ibv_query_port");
  expect(!fcntl(context->async_fd, F_SETFL, fcntl(context->async_fd, F_GETFL) | O_NONBLOCK),
         "fcntl");
  srq = ibv_create_srq(pd, &srq_attr);
  if (!srq) die("ibv_create_srq");
  from_mr = reg(from, sizeof(from), 0);
  to_mr = reg(to, sizeof(to), IBV_EXP_ACCESS_REMOTE_WRITE);
  create_target(srq);
  create_initiator();
  for (i = 0; i < rounds; ++i) {
    memset(from, i + 1, sizeof(from));
    arm();
    ready();
    expect(put(DC_KEY) == IBV_WC_SUCCESS, "the friend is refused");
    expect(!memcmp(from, to, sizeof(to)), "the friend's data are wrong");
    expect(reports() == 0, "the friend is reported");
    before = count();
    memset(from, 0xff, sizeof(from));
    expect(put(DC_KEY + 1) != IBV_WC_SUCCESS, "the stranger is let in");
    ready();
    expect(put(~DC_KEY) != IBV_WC_SUCCESS, "the stranger is let in");
    expect(to[0] == i + 1, "the stranger's data arrived");
    expect(reports() == 1, "not reported, or not once");
    expect(count() > before, "not counted");
  }
  check(ibv_destroy_qp(dci), "ibv_destroy_qp");
  check(ibv_exp_destroy_dct(dct), "ibv_exp_destroy_dct");
  check(ibv_destroy_ah(ah), "ibv_destroy_ah");
  check(ibv_destroy_srq(srq), "ibv_destroy_srq");
  check(ibv_dereg_mr(from_mr), "ibv_dereg_mr");
  check(ibv_dereg_mr(to_mr), "ibv_dereg_mr");
  stop();
  printf("%d strangers reported, all bytes verified\n", rounds);
  return 0;
}
