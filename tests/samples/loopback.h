/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Two queue pairs of one process, connected to each other through the device:
 * what the samples about memory have in common.
 */
#ifndef SAMPLES_LOOPBACK_H
#define SAMPLES_LOOPBACK_H

#include <errno.h>
#include <infiniband/verbs_exp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
/* The first one posts, the second one answers. */
static struct ibv_qp *qp, *peer;
static int gid_index = -1;

static void die(const char *what) {
  fprintf(stderr, "%s: %s\n", what, strerror(errno));
  exit(1);
}

static void check(int error, const char *what) {
  if (error) {
    errno = error < 0 ? -error : error;
    die(what);
  }
}

static void expect(int true_or_not, const char *what) {
  if (!true_or_not) {
    fprintf(stderr, "%s\n", what);
    exit(1);
  }
}

/* umr_pieces: pieces of a UMR work request, 0 without UMR. */
static inline struct ibv_qp *create_qp(uint32_t umr_pieces) {
  struct ibv_exp_qp_init_attr attr = {0};
  struct ibv_qp *made;

  attr.send_cq = attr.recv_cq = cq;
  attr.cap.max_send_wr = attr.cap.max_recv_wr = 32;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
  attr.qp_type = IBV_QPT_RC;
  attr.comp_mask = IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS;
  attr.pd = pd;
  if (umr_pieces) {
    attr.comp_mask |= IBV_EXP_QP_INIT_ATTR_MAX_INL_KLMS;
    attr.exp_create_flags = IBV_EXP_QP_CREATE_UMR;
    attr.max_inl_send_klms = umr_pieces;
  }
  made = ibv_exp_create_qp(context, &attr);
  if (!made) die("ibv_exp_create_qp");
  return made;
}

static inline void connect_qp(struct ibv_qp *from, const struct ibv_qp *to) {
  struct ibv_exp_qp_attr attr = {0};
  struct ibv_port_attr port;

  check(ibv_query_port(context, 1, &port), "ibv_query_port");
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags =
      IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  check(ibv_exp_modify_qp(
            from, &attr,
            IBV_EXP_QP_STATE | IBV_EXP_QP_PKEY_INDEX | IBV_EXP_QP_PORT | IBV_EXP_QP_ACCESS_FLAGS),
        "to INIT");
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = to->qp_num;
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = 12;
  attr.ah_attr.dlid = port.lid;
  attr.ah_attr.port_num = 1;
  if (gid_index >= 0) {
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.sgid_index = (uint8_t)gid_index;
    attr.ah_attr.grh.hop_limit = 1;
    check(ibv_query_gid(context, 1, gid_index, &attr.ah_attr.grh.dgid), "GID");
  }
  check(ibv_exp_modify_qp(from, &attr,
                          IBV_EXP_QP_STATE | IBV_EXP_QP_AV | IBV_EXP_QP_PATH_MTU |
                              IBV_EXP_QP_DEST_QPN | IBV_EXP_QP_RQ_PSN |
                              IBV_EXP_QP_MAX_DEST_RD_ATOMIC | IBV_EXP_QP_MIN_RNR_TIMER),
        "to RTR");
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = attr.rnr_retry = 7;
  attr.max_rd_atomic = 1;
  check(ibv_exp_modify_qp(from, &attr,
                          IBV_EXP_QP_STATE | IBV_EXP_QP_SQ_PSN | IBV_EXP_QP_TIMEOUT |
                              IBV_EXP_QP_RETRY_CNT | IBV_EXP_QP_RNR_RETRY |
                              IBV_EXP_QP_MAX_QP_RD_ATOMIC),
        "to RTS");
}

static inline void create_pair(uint32_t umr_pieces) {
  qp = create_qp(umr_pieces);
  peer = create_qp(umr_pieces);
  connect_qp(qp, peer);
  connect_qp(peer, qp);
}

static inline void destroy_pair(void) {
  check(ibv_destroy_qp(qp), "ibv_destroy_qp");
  check(ibv_destroy_qp(peer), "ibv_destroy_qp");
}

/* PROGRAM [-g GID_INDEX] */
static inline void start(int argc, char **argv) {
  struct ibv_exp_cq_init_attr cq_attr = {0};
  struct ibv_device **list = ibv_get_device_list(NULL);

  if (argc == 3 && !strcmp(argv[1], "-g")) gid_index = atoi(argv[2]);
  if (!list || !list[0]) die("no device");
  context = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  if (!context) die("ibv_open_device");
  pd = ibv_alloc_pd(context);
  if (!pd) die("ibv_alloc_pd");
  cq = ibv_exp_create_cq(context, 128, NULL, NULL, 0, &cq_attr);
  if (!cq) die("ibv_exp_create_cq");
}

static inline void stop(void) {
  check(ibv_destroy_cq(cq), "ibv_destroy_cq");
  check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
  check(ibv_close_device(context), "ibv_close_device");
}

static inline struct ibv_mr *reg(void *addr, size_t length, uint64_t more) {
  struct ibv_exp_reg_mr_in in = {0};
  struct ibv_mr *mr;

  in.pd = pd;
  in.addr = addr;
  in.length = length;
  in.exp_access = IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_REMOTE_WRITE |
                  IBV_EXP_ACCESS_REMOTE_READ | IBV_EXP_ACCESS_REMOTE_ATOMIC | more;
  mr = ibv_exp_reg_mr(&in);
  if (!mr) die("ibv_exp_reg_mr");
  return mr;
}

static inline struct ibv_exp_wc next_completion(void) {
  struct ibv_exp_wc wc;
  int n;

  memset(&wc, 0, sizeof(wc));
  do {
    n = ibv_exp_poll_cq(cq, 1, &wc, sizeof(wc));
    check(n < 0 ? -n : 0, "ibv_exp_poll_cq");
  } while (!n);
  return wc;
}

static inline void post(struct ibv_qp *on, struct ibv_exp_send_wr *wr) {
  struct ibv_exp_send_wr *bad = NULL;

  check(ibv_exp_post_send(on, wr, &bad), "ibv_exp_post_send");
}

/* One RDMA transfer by qp, and how it ended. */
static inline enum ibv_wc_status transfer(enum ibv_exp_wr_opcode opcode, uint64_t local,
                                          uint32_t length, uint32_t lkey, uint64_t remote,
                                          uint32_t rkey) {
  struct ibv_sge piece = {local, length, lkey};
  struct ibv_exp_send_wr wr;

  /* Real programs set what they need and leave the rest. */
  memset(&wr, 0x5c, sizeof(wr));
  wr.wr_id = 1;
  wr.next = NULL;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  wr.exp_opcode = opcode;
  wr.exp_send_flags = IBV_EXP_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = remote;
  wr.wr.rdma.rkey = rkey;
  post(qp, &wr);
  return next_completion().status;
}

#endif
