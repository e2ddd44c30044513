/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The work that post_bench.py counts instructions of, under callgrind: the same
 * requests through ibv_post_send() and ibv_exp_post_send(), and their
 * completions through ibv_poll_cq() and ibv_exp_poll_cq(), on one RC queue pair.
 */
#include <stddef.h>
#include <time.h>
#include <valgrind/callgrind.h>

#include "../samples/loopback.h"

#define CHAIN 16
#define BYTES 64

static struct ibv_mr *local, *remote;
static unsigned char bytes[2][CHAIN * BYTES];
static struct ibv_sge pieces[CHAIN];
static struct ibv_send_wr plain[CHAIN];
static struct ibv_exp_send_wr exp_wr[CHAIN];

static const struct kind {
  const char *name;
  enum ibv_wr_opcode opcode;
  unsigned int flags;
} kinds[] = {
    {"write", IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED},
    {"inline", IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED | IBV_SEND_INLINE},
    {"read", IBV_WR_RDMA_READ, IBV_SEND_SIGNALED},
    {"atomic", IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_SEND_SIGNALED},
    /* What is polled are the peer's receives. */
    {"receive", IBV_WR_SEND_WITH_IMM, 0},
};

static void prepare(const struct kind *kind, int count) {
  int i;

  for (i = 0; i < count; ++i) {
    pieces[i].addr = (uintptr_t)(bytes[0] + i * BYTES);
    pieces[i].length = kind->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8
                       : kind->flags & IBV_SEND_INLINE             ? 32
                                                                   : BYTES;
    pieces[i].lkey = local->lkey;
    memset(&plain[i], 0, sizeof(plain[i]));
    plain[i].sg_list = &pieces[i];
    plain[i].num_sge = 1;
    plain[i].opcode = kind->opcode;
    plain[i].send_flags = kind->flags;
    if (kind->opcode != IBV_WR_SEND_WITH_IMM) {
      plain[i].wr.rdma.remote_addr = (uintptr_t)bytes[1];
      plain[i].wr.rdma.rkey = remote->rkey;
    }
    if (kind->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      plain[i].wr.atomic.remote_addr = (uintptr_t)bytes[1];
      plain[i].wr.atomic.compare_add = 1;
      plain[i].wr.atomic.rkey = remote->rkey;
    }
    plain[i].next = i + 1 < count ? &plain[i + 1] : NULL;
    /* The same, in the legacy layout. */
    memset(&exp_wr[i], 0xa5, sizeof(exp_wr[i]));
    memcpy(&exp_wr[i], &plain[i], offsetof(struct ibv_exp_send_wr, task));
    exp_wr[i].exp_opcode = (enum ibv_exp_wr_opcode)kind->opcode;
    exp_wr[i].exp_send_flags = kind->flags;
    exp_wr[i].next = i + 1 < count ? &exp_wr[i + 1] : NULL;
  }
}

/* The device works in a thread of its own. */
static void wait_for_device(void) {
  const struct timespec pause = {0, 50000000};

  nanosleep(&pause, NULL);
}

static void begin(void) {
  CALLGRIND_ZERO_STATS;
  CALLGRIND_TOGGLE_COLLECT;
}

static void end(const char *phase) {
  CALLGRIND_TOGGLE_COLLECT;
  CALLGRIND_DUMP_STATS_AT(phase);
}

/* Not inlined, for the program's own share to be the inlines' alone. */
static __attribute__((noinline)) int post_plain(void) {
  struct ibv_send_wr *bad;

  return ibv_post_send(qp, plain, &bad);
}

static __attribute__((noinline)) int post_exp(void) {
  struct ibv_exp_send_wr *bad;

  return ibv_exp_post_send(qp, exp_wr, &bad);
}

static __attribute__((noinline)) int poll_plain(int count) {
  static struct ibv_wc wc[CHAIN];

  return ibv_poll_cq(cq, count, wc);
}

static __attribute__((noinline)) int poll_exp(int count) {
  static struct ibv_exp_wc wc[CHAIN];

  return ibv_exp_poll_cq(cq, count, wc, sizeof(wc[0]));
}

/* What is posted has where to go. */
static void post_receives(const struct kind *kind, int count) {
  struct ibv_sge piece = {(uintptr_t)bytes[1], BYTES, remote->lkey};
  struct ibv_recv_wr wr = {.sg_list = &piece, .num_sge = 1}, *bad;

  while (kind->opcode == IBV_WR_SEND_WITH_IMM && count-- > 0)
    check(ibv_post_recv(peer, &wr, &bad), "ibv_post_recv");
}

/* Gives the places of unsignaled requests in the queue back. */
static void reap_sends(const struct kind *kind) {
  struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED}, *bad;
  struct ibv_wc wc;
  int n;

  if (kind->flags & IBV_SEND_SIGNALED) return;
  check(ibv_post_send(qp, &wr, &bad), "ibv_post_send");
  while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
    ;
  expect(n == 1 && wc.status == IBV_WC_SUCCESS, "an empty write");
}

static void run(const struct kind *kind, int count, const char *how, int (*post_some)(void),
                int (*poll)(int), int warm) {
  char phase[64];
  int n, tries;

  prepare(kind, count);
  post_receives(kind, count);
  snprintf(phase, sizeof(phase), "%s-post-%s-%d", how, kind->name, count);
  begin();
  n = post_some();
  if (warm) CALLGRIND_TOGGLE_COLLECT;
  else end(phase);
  check(n, "post");
  snprintf(phase, sizeof(phase), "%s-poll-%s-%d", how, kind->name, count);
  for (tries = 0; tries < 50; ++tries) {
    wait_for_device();
    begin();
    n = poll(count);
    if (n == count && !warm) end(phase);
    else CALLGRIND_TOGGLE_COLLECT;
    if (n == count) {
      reap_sends(kind);
      return;
    }
    expect(n >= 0, "poll");
    /* All at once, or it is not what is to be measured. */
    while (n < count) {
      int more = poll(count - n);

      expect(more >= 0, "poll");
      n += more;
    }
    reap_sends(kind);
    post_receives(kind, count);
    check(post_some(), "post");
  }
  expect(0, "the device is too slow");
}

int main(int argc, char **argv) {
  size_t i;
  int warm, count;

  start(argc, argv);
  local = reg(bytes[0], sizeof(bytes[0]), 0);
  remote = reg(bytes[1], sizeof(bytes[1]), 0);
  create_pair(0);
  /* Once to bind symbols and touch memory, then to count: what is posted where in
	 * the queue makes a difference, so several times. */
  for (warm = 1; warm > -6; --warm)
    for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); ++i)
      for (count = 1; count <= CHAIN; count += CHAIN - 1) {
        run(&kinds[i], count, "base", post_plain, poll_plain, warm == 1);
        run(&kinds[i], count, "exp", post_exp, poll_exp, warm == 1);
      }
  destroy_pair();
  check(ibv_dereg_mr(local), "ibv_dereg_mr");
  check(ibv_dereg_mr(remote), "ibv_dereg_mr");
  stop();
  return 0;
}
