/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A log that many clients append to with plain messages, as key-value stores and RPC servers for
 * MLNX_OFED have it: one shared receive queue of strides, whose few large buffers take message
 * behind message from all connections, in the order of their arrival.
 *
 *   exp_strides
 */
#include "loopback.h"

enum { clients = 4, messages = 400, log_stride = 6, log_count = 8, buffers = 4 };
enum { stride = 1 << log_stride, buffer_bytes = stride << log_count };

static struct ibv_srq *srq;
static struct ibv_cq *log_cq;
static struct ibv_qp *senders[clients], *receivers[clients];
static uint8_t logs[buffers][buffer_bytes], outgoing[1024];

static void create_srq(void) {
  struct ibv_exp_cq_init_attr cq_attr = {0};
  struct ibv_exp_create_srq_attr attr;

  memset(&attr, 0, sizeof(attr));
  log_cq = ibv_exp_create_cq(context, 128, NULL, NULL, 0, &cq_attr);
  if (!log_cq) die("ibv_exp_create_cq");
  attr.base.attr.max_wr = buffers;
  attr.base.attr.max_sge = 1;
  attr.srq_type = IBV_EXP_SRQT_TAG_MATCHING;
  attr.pd = pd;
  attr.cq = log_cq;
  attr.comp_mask = IBV_EXP_CREATE_SRQ_CQ | IBV_EXP_CREATE_SRQ_TM | IBV_EXP_CREATE_SRQ_MP_WR;
  attr.tm_cap.max_num_tags = 1;
  attr.tm_cap.max_ops = 1;
  attr.mp_wr.log_num_of_strides = log_count;
  attr.mp_wr.log_stride_size = log_stride;
  srq = ibv_exp_create_srq(context, &attr);
  if (!srq) die("ibv_exp_create_srq");
}

static struct ibv_qp *create_receiver(void) {
  struct ibv_exp_qp_init_attr attr = {0};
  struct ibv_qp *made;

  attr.send_cq = attr.recv_cq = cq;
  attr.srq = srq;
  attr.cap.max_send_wr = attr.cap.max_send_sge = 1;
  attr.qp_type = IBV_QPT_RC;
  attr.comp_mask = IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS;
  attr.pd = pd;
  made = ibv_exp_create_qp(context, &attr);
  if (!made) die("ibv_exp_create_qp");
  return made;
}

static void hand_out(uint64_t buffer, const struct ibv_mr *mr) {
  struct ibv_sge piece = {(uintptr_t)logs[buffer], buffer_bytes, mr->lkey};
  struct ibv_recv_wr wr = {0}, *bad;

  wr.wr_id = buffer;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  check(ibv_post_srq_recv(srq, &wr, &bad), "ibv_post_srq_recv");
}

/* The client's number and the message's, and bytes that follow from them. */
static uint32_t fill(int client, int message) {
  uint32_t bytes = 9 + (uint32_t)(message * 37 % 300), i;

  outgoing[0] = 0; /* of no tag */
  memcpy(outgoing + 1, &client, 4);
  memcpy(outgoing + 5, &message, 4);
  for (i = 9; i < bytes; i++) outgoing[i] = (uint8_t)(client + message + (int)i);
  return bytes;
}

static struct ibv_exp_wc next_of_log(void) {
  struct ibv_exp_wc wc;
  int n;

  memset(&wc, 0, sizeof(wc));
  do {
    n = ibv_exp_poll_cq(log_cq, 1, &wc, sizeof(wc));
    check(n < 0 ? -n : 0, "ibv_exp_poll_cq");
  } while (!n);
  expect(wc.status == IBV_WC_SUCCESS, "a message did not arrive");
  return wc;
}

int main(int argc, char **argv) {
  struct ibv_mr *from, *to;
  struct ibv_exp_wc wc;
  int i, message, nops = 0;
  uint32_t bytes;

  start(argc, argv);
  create_srq();
  from = reg(outgoing, sizeof(outgoing), 0);
  to = reg(logs, sizeof(logs), 0);
  for (i = 0; i < clients; i++) {
    senders[i] = create_qp(0);
    receivers[i] = create_receiver();
    connect_qp(senders[i], receivers[i]);
    connect_qp(receivers[i], senders[i]);
  }
  for (i = 0; i < buffers; i++) hand_out((uint64_t)i, to);

  for (message = 0; message < messages; message++) {
    qp = senders[message % clients];
    bytes = fill(message % clients, message);
    expect(
        transfer(IBV_EXP_WR_SEND, (uintptr_t)outgoing, bytes, from->lkey, 0, 0) == IBV_WC_SUCCESS,
        "a message was not sent");
    for (wc = next_of_log(); wc.exp_opcode == IBV_EXP_WC_RECV_NOP; wc = next_of_log()) {
      hand_out(wc.wr_id, to); /* the rest of the buffer was too small */
      nops++;
    }
    expect(wc.exp_opcode == IBV_EXP_WC_TM_NO_TAG && wc.mp_wr.byte_len == bytes &&
               wc.qp_num == receivers[message % clients]->qp_num,
           "another message arrived");
    expect(!memcmp(logs[wc.wr_id] + wc.mp_wr.strides_offset * stride, outgoing, bytes),
           "a message differs");
    if (wc.exp_wc_flags & IBV_EXP_WC_MP_WR_CONSUMED) hand_out(wc.wr_id, to);
  }

  for (i = 0; i < clients; i++) {
    check(ibv_destroy_qp(senders[i]), "ibv_destroy_qp");
    check(ibv_destroy_qp(receivers[i]), "ibv_destroy_qp");
  }
  check(ibv_destroy_srq(srq), "ibv_destroy_srq");
  check(ibv_destroy_cq(log_cq), "ibv_destroy_cq");
  check(ibv_dereg_mr(from), "ibv_dereg_mr");
  check(ibv_dereg_mr(to), "ibv_dereg_mr");
  stop();
  printf("%d messages, %d buffers not filled to their ends\n", messages, nops);
  puts("all bytes verified");
  return 0;
}
