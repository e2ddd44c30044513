/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Cross-channel in the style of programs written for MLNX_OFED: a message goes through a chain of
 * connections, and the program does not touch it on the way. All sends are posted beforehand, to
 * managed queues. A master waits for what arrives at each place and releases the next send.
 *
 *   exp_tasks [-g GID_INDEX]
 */
#include "loopback.h"

enum { hops = 5, rounds = 20, bytes = 256 };

static uint8_t place[hops + 1][bytes];
static struct ibv_mr *mr;
static struct ibv_cq *arrived[hops];
static struct ibv_qp *from[hops], *to[hops], *master;

static struct ibv_qp *create(struct ibv_cq *recv_cq, uint32_t flags) {
  struct ibv_exp_qp_init_attr attr = {0};
  struct ibv_qp *made;

  attr.send_cq = cq;
  attr.recv_cq = recv_cq;
  attr.cap.max_send_wr = attr.cap.max_recv_wr = 32;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
  attr.qp_type = IBV_QPT_RC;
  attr.comp_mask = IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS;
  attr.exp_create_flags = flags;
  attr.pd = pd;
  made = ibv_exp_create_qp(context, &attr);
  if (!made) die("ibv_exp_create_qp");
  return made;
}

static void create_chain(void) {
  int i;

  for (i = 0; i < hops; ++i) {
    struct ibv_exp_cq_init_attr attr = {0};

    arrived[i] = ibv_exp_create_cq(context, 64, NULL, NULL, 0, &attr);
    if (!arrived[i]) die("ibv_exp_create_cq");
    from[i] = create(cq, IBV_EXP_QP_CREATE_MANAGED_SEND);
    to[i] = create(arrived[i], 0);
    connect_qp(from[i], to[i]);
    connect_qp(to[i], from[i]);
  }
  master = create(cq, IBV_EXP_QP_CREATE_CROSS_CHANNEL);
  connect_qp(master, master);
}

static void destroy_chain(void) {
  int i;

  check(ibv_destroy_qp(master), "ibv_destroy_qp");
  for (i = 0; i < hops; ++i) {
    check(ibv_destroy_qp(from[i]), "ibv_destroy_qp");
    check(ibv_destroy_qp(to[i]), "ibv_destroy_qp");
    check(ibv_destroy_cq(arrived[i]), "ibv_destroy_cq");
  }
}

/* One call posts what all connections have to do. */
static void post_round(void) {
  struct ibv_exp_task tasks[2 * hops + 1], *bad;
  struct ibv_exp_send_wr sends[hops], orders[2 * hops];
  struct ibv_recv_wr receives[hops];
  struct ibv_sge out[hops], in[hops];
  int i;

  memset(tasks, 0, sizeof(tasks));
  memset(sends, 0, sizeof(sends));
  memset(orders, 0, sizeof(orders));
  memset(receives, 0, sizeof(receives));
  for (i = 0; i < hops; ++i) {
    in[i].addr = (uintptr_t)place[i + 1];
    out[i].addr = (uintptr_t)place[i];
    in[i].length = out[i].length = bytes;
    in[i].lkey = out[i].lkey = mr->lkey;
    receives[i].sg_list = &in[i];
    receives[i].num_sge = 1;
    sends[i].sg_list = &out[i];
    sends[i].num_sge = 1;
    sends[i].exp_opcode = IBV_EXP_WR_SEND;
    tasks[2 * i].task_type = IBV_EXP_TASK_RECV;
    tasks[2 * i].item.qp = to[i];
    tasks[2 * i].item.recv_wr = &receives[i];
    tasks[2 * i].next = &tasks[2 * i + 1];
    tasks[2 * i + 1].task_type = IBV_EXP_TASK_SEND;
    tasks[2 * i + 1].item.qp = from[i];
    tasks[2 * i + 1].item.send_wr = &sends[i];
    tasks[2 * i + 1].next = &tasks[2 * i + 2];

    orders[2 * i].exp_opcode = IBV_EXP_WR_SEND_ENABLE;
    orders[2 * i].task.wqe_enable.qp = from[i];
    orders[2 * i].task.wqe_enable.wqe_count = 1;
    orders[2 * i].exp_send_flags = IBV_EXP_SEND_WAIT_EN_LAST;
    orders[2 * i].next = &orders[2 * i + 1];
    orders[2 * i + 1].exp_opcode = IBV_EXP_WR_CQE_WAIT;
    orders[2 * i + 1].task.cqe_wait.cq = arrived[i];
    orders[2 * i + 1].task.cqe_wait.cq_count = 1;
    orders[2 * i + 1].exp_send_flags = IBV_EXP_SEND_WAIT_EN_LAST;
    orders[2 * i + 1].next = i + 1 < hops ? &orders[2 * i + 2] : NULL;
  }
  orders[2 * hops - 1].exp_send_flags |= IBV_EXP_SEND_SIGNALED;
  tasks[2 * hops].task_type = IBV_EXP_TASK_SEND;
  tasks[2 * hops].item.qp = master;
  tasks[2 * hops].item.send_wr = orders;
  check(ibv_exp_post_task(context, tasks, &bad), "ibv_exp_post_task");
}

int main(int argc, char **argv) {
  struct ibv_exp_device_attr device = {0};
  struct ibv_wc wc;
  int i, round;

  start(argc, argv);
  device.comp_mask = IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS;
  check(ibv_exp_query_device(context, &device), "ibv_exp_query_device");
  expect((device.exp_device_cap_flags & IBV_EXP_DEVICE_CROSS_CHANNEL) != 0, "no cross-channel");
  mr = reg(place, sizeof(place), 0);
  create_chain();
  for (round = 0; round < rounds; ++round) {
    memset(place, 0, sizeof(place));
    for (i = 0; i < bytes; ++i) place[0][i] = (uint8_t)(i + 7 * round);
    post_round();
    expect(next_completion().status == IBV_WC_SUCCESS, "the master has failed");
    for (i = 0; i < hops; ++i) {
      expect(ibv_poll_cq(arrived[i], 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS, "not arrived");
      expect(!memcmp(place[i + 1], place[0], bytes), "the data are wrong");
    }
  }
  destroy_chain();
  check(ibv_dereg_mr(mr), "ibv_dereg_mr");
  stop();
  printf("%d messages went over %d connections, all bytes verified\n", rounds, hops);
  return 0;
}
