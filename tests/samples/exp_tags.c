/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Tag matching as MPI libraries for MLNX_OFED use it: the receiver says which tag it
 * wants where, and the device puts each message there, whatever the order. A long message
 * comes as a rendezvous: the device fetches it. A message whose tag is not in the list arrives in
 * a plain buffer, and the two sides then synchronise their counts of such messages.
 *
 *   exp_tags
 */
#include <endian.h>

#include "loopback.h"

enum { tags = 8, small = 200, large = 40000 };

static struct ibv_srq *srq;
static struct ibv_cq *tag_cq;
static uint8_t outgoing[sizeof(struct ibv_exp_tmh) + small], answer[64];
static uint8_t wanted[tags][small], unexpected[sizeof(outgoing)];
static uint8_t source[large], fetched[large];

static void create_srq(void) {
  struct ibv_exp_cq_init_attr cq_attr = {0};
  struct ibv_exp_create_srq_attr attr;

  memset(&attr, 0, sizeof(attr));
  tag_cq = ibv_exp_create_cq(context, 128, NULL, NULL, 0, &cq_attr);
  if (!tag_cq) die("ibv_exp_create_cq");
  attr.base.attr.max_wr = 16;
  attr.base.attr.max_sge = 1;
  attr.srq_type = IBV_EXP_SRQT_TAG_MATCHING;
  attr.pd = pd;
  attr.cq = tag_cq;
  attr.comp_mask = IBV_EXP_CREATE_SRQ_CQ | IBV_EXP_CREATE_SRQ_TM;
  attr.tm_cap.max_num_tags = tags;
  attr.tm_cap.max_ops = 2 * tags;
  srq = ibv_exp_create_srq(context, &attr);
  if (!srq) die("ibv_exp_create_srq");
}

static struct ibv_qp *create_server(void) {
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

static struct ibv_exp_wc next_of_tags(void) {
  struct ibv_exp_wc wc;
  int n;

  memset(&wc, 0, sizeof(wc));
  do {
    n = ibv_exp_poll_cq(tag_cq, 1, &wc, sizeof(wc));
    check(n < 0 ? -n : 0, "ibv_exp_poll_cq");
  } while (!n);
  expect(wc.status == IBV_WC_SUCCESS, "a completion of tags failed");
  return wc;
}

static void operate(struct ibv_exp_ops_wr *op, enum ibv_exp_wc_opcode done) {
  struct ibv_exp_ops_wr *bad;

  op->next = NULL;
  op->flags |= IBV_EXP_OPS_SIGNALED;
  check(ibv_exp_post_srq_ops(srq, op, &bad), "ibv_exp_post_srq_ops");
  expect(next_of_tags().exp_opcode == done, "another operation completed");
}

static uint32_t want(uint64_t tag, void *where, uint32_t length, struct ibv_mr *mr) {
  struct ibv_sge piece = {(uintptr_t)where, length, mr->lkey};
  struct ibv_exp_ops_wr op = {0};

  op.opcode = IBV_EXP_WR_TAG_ADD;
  op.tm.add.recv_wr_id = tag;
  op.tm.add.sg_list = &piece;
  op.tm.add.num_sge = 1;
  op.tm.add.tag = tag;
  op.tm.add.mask = ~0ull;
  operate(&op, IBV_EXP_WC_TM_ADD);
  return op.tm.handle;
}

static void send_message(uint8_t opcode, uint64_t tag, uint32_t length, struct ibv_mr *mr) {
  struct ibv_exp_tmh header = {0};

  header.opcode = opcode;
  header.app_ctx = htobe32((uint32_t)tag + 100);
  header.tag = htobe64(tag);
  memcpy(outgoing, &header, sizeof(header));
  expect(transfer(IBV_EXP_WR_SEND, (uintptr_t)outgoing, (uint32_t)sizeof(header) + length, mr->lkey,
                  0, 0) == IBV_WC_SUCCESS,
         "a message was not sent");
}

/* Messages in the reverse of the order in which they are waited for. */
static void match_all(struct ibv_mr *from, struct ibv_mr *to) {
  struct ibv_exp_wc wc;
  int tag;

  for (tag = 0; tag < tags; tag++) want((uint64_t)tag, wanted[tag], small, to);
  for (tag = tags - 1; tag >= 0; tag--) {
    memset(outgoing + sizeof(struct ibv_exp_tmh), 'a' + tag, small);
    send_message(IBV_EXP_TMH_EAGER, (uint64_t)tag, small, from);
    wc = next_of_tags();
    expect(wc.exp_opcode == IBV_EXP_WC_TM_RECV && wc.wr_id == (uint64_t)tag &&
               wc.byte_len == small && wc.tm_info.priv == (uint32_t)tag + 100 &&
               (wc.exp_wc_flags & IBV_EXP_WC_TM_MATCH) &&
               (wc.exp_wc_flags & IBV_EXP_WC_TM_DATA_VALID),
           "a message was not matched");
  }
  for (tag = 0; tag < tags; tag++)
    expect(wanted[tag][0] == 'a' + tag && wanted[tag][small - 1] == 'a' + tag,
           "a message went elsewhere");
}

static void fetch(struct ibv_mr *from, struct ibv_mr *data, struct ibv_mr *to,
                  struct ibv_mr *back) {
  struct ibv_sge piece = {(uintptr_t)answer, sizeof(answer), back->lkey};
  struct ibv_recv_wr receive = {0}, *bad;
  struct ibv_exp_tmh_rvh rvh = {0};

  receive.sg_list = &piece;
  receive.num_sge = 1;
  check(ibv_post_recv(qp, &receive, &bad), "ibv_post_recv");
  memset(source, 'L', sizeof(source));
  want(77, fetched, sizeof(fetched), to);
  rvh.va = htobe64((uintptr_t)source);
  rvh.rkey = htobe32(data->rkey);
  rvh.len = htobe32(sizeof(source));
  memcpy(outgoing + sizeof(struct ibv_exp_tmh), &rvh, sizeof(rvh));
  send_message(IBV_EXP_TMH_RNDV, 77, sizeof(rvh), from);
  expect((next_of_tags().exp_wc_flags & IBV_EXP_WC_TM_MATCH) != 0,
         "the rendezvous was not matched");
  expect(next_of_tags().byte_len == sizeof(fetched), "the rendezvous has no data");
  expect(fetched[0] == 'L' && fetched[large - 1] == 'L', "the data is wrong");
  expect(next_completion().exp_opcode == IBV_EXP_WC_RECV && answer[0] == IBV_EXP_TMH_FIN,
         "the sender was not told");
}

static void take_unexpected(struct ibv_mr *from, struct ibv_mr *plain) {
  struct ibv_sge piece = {(uintptr_t)unexpected, sizeof(unexpected), plain->lkey};
  struct ibv_exp_ops_wr sync = {0};
  struct ibv_recv_wr receive = {0}, *bad;
  struct ibv_exp_wc wc;

  receive.wr_id = 5;
  receive.sg_list = &piece;
  receive.num_sge = 1;
  check(ibv_post_srq_recv(srq, &receive, &bad), "ibv_post_srq_recv");
  send_message(IBV_EXP_TMH_EAGER, 1000, small, from);
  wc = next_of_tags();
  expect(wc.exp_opcode == IBV_EXP_WC_TM_RECV && wc.wr_id == 5 &&
             !(wc.exp_wc_flags & IBV_EXP_WC_TM_MATCH) && wc.byte_len == sizeof(unexpected),
         "the message was matched");
  sync.opcode = IBV_EXP_WR_TAG_SYNC;
  sync.flags = IBV_EXP_OPS_TM_SYNC;
  sync.tm.unexpected_cnt = 1;
  operate(&sync, IBV_EXP_WC_TM_SYNC);
}

int main(int argc, char **argv) {
  struct ibv_mr *from, *to, *data, *large_mr, *plain, *back;
  struct ibv_exp_ops_wr gone = {0};

  start(argc, argv);
  create_srq();
  qp = create_qp(0);
  peer = create_server();
  connect_qp(qp, peer);
  connect_qp(peer, qp);
  from = reg(outgoing, sizeof(outgoing), 0);
  to = reg(wanted, sizeof(wanted), 0);
  data = reg(source, sizeof(source), 0);
  large_mr = reg(fetched, sizeof(fetched), 0);
  plain = reg(unexpected, sizeof(unexpected), 0);
  back = reg(answer, sizeof(answer), 0);

  match_all(from, to);
  fetch(from, data, large_mr, back);
  take_unexpected(from, plain);
  gone.opcode = IBV_EXP_WR_TAG_DEL;
  gone.tm.handle = want(3, wanted, small, to);
  operate(&gone, IBV_EXP_WC_TM_DEL);
  match_all(from, to);

  destroy_pair();
  check(ibv_destroy_srq(srq), "ibv_destroy_srq");
  check(ibv_destroy_cq(tag_cq), "ibv_destroy_cq");
  check(ibv_dereg_mr(from), "ibv_dereg_mr");
  check(ibv_dereg_mr(to), "ibv_dereg_mr");
  check(ibv_dereg_mr(data), "ibv_dereg_mr");
  check(ibv_dereg_mr(large_mr), "ibv_dereg_mr");
  check(ibv_dereg_mr(plain), "ibv_dereg_mr");
  check(ibv_dereg_mr(back), "ibv_dereg_mr");
  stop();
  puts("all bytes verified");
  return 0;
}
