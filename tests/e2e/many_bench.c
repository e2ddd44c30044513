/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Work that verbs_bench.py counts instructions of beside that of hotpath_bench: lists of 64,
 * one completion for 64 requests, requests of 16 pieces, and completion queues that many
 * queue pairs share, each of which writes to itself.
 *
 *     many_bench base|exp [-g GID_INDEX]
 */
#define LIST 64
#define MOST_AT_ONCE LIST
#include "posting.h"

#define PIECES 16
#define SHARERS 1024

static struct ibv_mr *mr;
static unsigned char bytes[4096];
static struct ibv_sge pieces[PIECES];
static struct ibv_qp *alone, *wide, *sharers[SHARERS];

static struct ibv_qp *make(struct ibv_cq *on, uint32_t most_requests, uint32_t most_pieces) {
  struct ibv_qp_init_attr attr;
  struct ibv_qp *made;

  memset(&attr, 0, sizeof(attr));
  attr.send_cq = attr.recv_cq = on;
  attr.qp_type = IBV_QPT_RC;
  attr.cap.max_send_wr = most_requests;
  attr.cap.max_recv_wr = attr.cap.max_recv_sge = 1;
  attr.cap.max_send_sge = most_pieces;
  made = ibv_create_qp(pd, &attr);
  if (!made) die("ibv_create_qp");
  ready(made, made);
  return made;
}

/* Writes, the last one of which completes, or each. */
static void prepare(int count, int of, int each) {
  int i;

  for (i = 0; i < of; ++i)
    pieces[i] = (struct ibv_sge){(uintptr_t)bytes + (unsigned)(i * 64), 8, mr->lkey};
  for (i = 0; i < count; ++i) {
    struct ibv_send_wr *wr = &base_wr[i];

    memset(wr, 0, sizeof(*wr));
    wr->sg_list = pieces;
    wr->num_sge = of;
    wr->opcode = IBV_WR_RDMA_WRITE;
    wr->send_flags = each || i + 1 == count ? IBV_SEND_SIGNALED : 0;
    wr->wr.rdma.remote_addr = (uintptr_t)bytes + 2048;
    wr->wr.rdma.rkey = mr->rkey;
    wr->next = i + 1 < count ? &base_wr[i + 1] : NULL;
    memset(&exp_wr[i], 0xa5, sizeof(exp_wr[i]));
    memcpy(&exp_wr[i], wr, offsetof(struct ibv_exp_send_wr, task));
    exp_wr[i].exp_opcode = IBV_EXP_WR_RDMA_WRITE;
    exp_wr[i].exp_send_flags = wr->send_flags;
    exp_wr[i].next = i + 1 < count ? &exp_wr[i + 1] : NULL;
  }
}

static void count_list(const char *kind, struct ibv_qp *on, int count, int of, int each) {
  int error, tries, turn;

  prepare(count, of, each);
  for (tries = 0; tries < TRIES; ++tries) {
    for (turn = 0; turn < in_a_row(count); ++turn) {
      begin();
      error = post_some(on);
      end("post", kind, count);
      check(error, "post");
    }
    wait_for_device();
    if (count_polls(on->send_cq, kind, each ? count : 1, each ? turn * count : turn)) return;
  }
  expect(0, "the device is too slow");
}

/* One completion of each of so many neighbours, all on one completion queue. */
static void count_shared(const char *kind, int sharing, int count) {
  static int next;
  int i, tries;

  prepare(1, 1, 1);
  for (tries = 0; tries < TRIES; ++tries) {
    for (i = 0; i < in_a_row(count) * count; ++i, ++next) {
      check(post_some(sharers[next % sharing]), "post");
      run_device();
    }
    wait_for_device();
    if (count_polls(sharers[0]->send_cq, kind, count, i)) return;
  }
  expect(0, "the device is too slow");
}

static void count_round(void) {
  int i;

  count_list("list", alone, LIST, 1, 1);
  count_list("sparse", alone, LIST, 1, 0);
  count_list("write16", wide, 1, PIECES, 1);
  count_list("write16", wide, 16, PIECES, 1);
  count_shared("shared-by-64", 64, 1);
  count_shared("shared-by-64", 64, 16);
  count_shared("shared-by-1024", SHARERS, 1);
  count_shared("shared-by-1024", SHARERS, 16);
  for (i = 0; i < in_a_row(1); ++i) count_harness();
}

int main(int argc, char **argv) {
  struct ibv_cq *shared;
  int i;

  if (argc < 2 || (strcmp(argv[1], "base") && strcmp(argv[1], "exp"))) {
    fprintf(stderr, "usage: %s base|exp [-g GID_INDEX]\n", argv[0]);
    return 1;
  }
  use_exp = !strcmp(argv[1], "exp");
  if (argc == 4 && !strcmp(argv[2], "-g")) gid_index = atoi(argv[3]);
  open_device();
  cq = ibv_create_cq(context, 2 * LIST, NULL, NULL, 0);
  shared = ibv_create_cq(context, 2 * LIST, NULL, NULL, 0);
  mr = ibv_reg_mr(pd, bytes, sizeof(bytes), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  if (!cq || !shared || !mr) die("queues and memory");
  alone = make(cq, 2 * LIST, 1);
  wide = make(cq, MOST_IN_A_ROW, PIECES);
  for (i = 0; i < SHARERS; ++i) sharers[i] = make(shared, 4, 1);
  for (i = 0; i < ROUNDS; ++i) count_round();

  for (i = 0; i < SHARERS; ++i) check(ibv_destroy_qp(sharers[i]), "ibv_destroy_qp");
  check(ibv_destroy_qp(wide), "ibv_destroy_qp");
  check(ibv_destroy_qp(alone), "ibv_destroy_qp");
  check(ibv_dereg_mr(mr), "ibv_dereg_mr");
  check(ibv_destroy_cq(shared), "ibv_destroy_cq");
  check(ibv_destroy_cq(cq), "ibv_destroy_cq");
  check(ibv_destroy_ah(ah), "ibv_destroy_ah");
  check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
  check(ibv_close_device(context), "ibv_close_device");
  return 0;
}
