/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A library that reads a queue pair of the legacy libmlx5 3.x and calls verbs by inlines alone: it
 * names no verb and needs no library of rdma-core.
 */
#include <infiniband/verbs_exp.h>
#include <stdint.h>
#include <string.h>

struct queues {
  uint32_t number, sends, receives;
  void *record, *send_buffer, *receive_buffer, *doorbell;
  int send_stride, receive_stride;
};

static uint32_t word(const struct ibv_qp *qp, int at) {
  uint32_t value;
  memcpy(&value, (const char *)qp + at, sizeof(value));
  return value;
}
static char *pointer(const struct ibv_qp *qp, int at) {
  char *value;
  memcpy(&value, (const char *)qp + at, sizeof(value));
  return value;
}

int silent_open(struct ibv_qp *qp, struct queues *out);
int silent_open(struct ibv_qp *qp, struct queues *out) {
  if (word(qp, 664) != 0 || word(qp, 388) != 0) return -1;
  out->number = word(qp, 724);
  out->record = pointer(qp, 648);
  out->send_buffer = pointer(qp, 176) + word(qp, 612);
  out->sends = word(qp, 512);
  out->send_stride = 1 << word(qp, 608);
  out->receive_buffer = pointer(qp, 176) + word(qp, 484);
  out->receives = word(qp, 384);
  out->receive_stride = 1 << word(qp, 480);
  out->doorbell = *(void **)(void *)pointer(qp, 656);
  return 0;
}

int silent_post(struct ibv_qp *qp, struct ibv_exp_send_wr *wr);
int silent_post(struct ibv_qp *qp, struct ibv_exp_send_wr *wr) {
  struct ibv_exp_send_wr *bad;
  return ibv_exp_post_send(qp, wr, &bad);
}
