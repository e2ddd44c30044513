/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What verbs_bench.py counts and times of threads that post and poll at once, each on queues of its
 * own or all on the same: writes to itself, one in a call.
 *
 *     threads_bench base|exp [-g GID_INDEX]
 */
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MOST_AT_ONCE 1
#include "posting.h"

#define THREADS 8
#define EACH 512 /* requests of a thread */

static struct ibv_mr *mr;
static unsigned char bytes[128];
static struct ibv_sge piece;

/* With a completion queue of its own. */
static struct ibv_qp *make(int most) {
  struct ibv_qp_init_attr attr;
  struct ibv_qp *made;

  memset(&attr, 0, sizeof(attr));
  attr.send_cq = attr.recv_cq = ibv_create_cq(context, most, NULL, NULL, 0);
  if (!attr.send_cq) die("ibv_create_cq");
  attr.qp_type = IBV_QPT_RC;
  attr.cap.max_send_wr = (uint32_t)most;
  attr.cap.max_recv_wr = attr.cap.max_recv_sge = attr.cap.max_send_sge = 1;
  made = ibv_create_qp(pd, &attr);
  if (!made) die("ibv_create_qp");
  ready(made, made);
  return made;
}

static void destroy(struct ibv_qp *on) {
  struct ibv_cq *const of = on->send_cq;

  check(ibv_destroy_qp(on), "ibv_destroy_qp");
  check(ibv_destroy_cq(of), "ibv_destroy_cq");
}

static void prepare(void) {
  piece = (struct ibv_sge){(uintptr_t)bytes, 8, mr->lkey};
  base_wr[0].sg_list = &piece;
  base_wr[0].num_sge = 1;
  base_wr[0].opcode = IBV_WR_RDMA_WRITE;
  base_wr[0].send_flags = IBV_SEND_SIGNALED;
  base_wr[0].wr.rdma.remote_addr = (uintptr_t)bytes + 64;
  base_wr[0].wr.rdma.rkey = mr->rkey;
  memcpy(&exp_wr[0], base_wr, offsetof(struct ibv_exp_send_wr, task));
  exp_wr[0].exp_opcode = IBV_EXP_WR_RDMA_WRITE;
  exp_wr[0].exp_send_flags = IBV_EXP_SEND_SIGNALED;
}

static struct thread {
  pthread_t id;
  struct ibv_qp *on;
  int polls, left;
} threads[THREADS];
static int waiting, go;

static int poll_one(struct ibv_cq *on) {
  struct ibv_exp_wc exp_wc;
  struct ibv_wc wc;

  return use_exp ? ibv_exp_poll_cq(on, 1, &exp_wc, sizeof(exp_wc)) : ibv_poll_cq(on, 1, &wc);
}

static void *run_thread(void *argument) {
  struct thread *const thread = argument;
  struct ibv_qp *const on = thread->on;
  int left = EACH;

  __atomic_add_fetch(&waiting, 1, __ATOMIC_RELEASE);
  while (!__atomic_load_n(&go, __ATOMIC_ACQUIRE)) syscall(SYS_sched_yield);
  begin_thread();
  if (thread->polls)
    while (left && poll_one(on->send_cq) == 1) --left;
  else
    while (left && !post_some(on)) --left;
  end_thread();
  thread->left = left;
  return NULL;
}

/* A request to its completion: the device is awake, and the page of its doorbells at hand. */
static void complete_one(struct ibv_qp *on) {
  check(post_some(on), "post");
  while (poll_one(on->send_cq) == 0) run_device();
}

/* How many requests were not posted, or not completed at once. */
static int run_threads(const char *kind, struct ibv_qp *const *on, int count, int polls) {
  int i, left = 0;

  waiting = go = 0;
  for (i = 0; i < count; ++i) {
    threads[i] = (struct thread){0, on[i], polls, 0};
    check(pthread_create(&threads[i].id, NULL, run_thread, &threads[i]), "pthread_create");
  }
  while (__atomic_load_n(&waiting, __ATOMIC_ACQUIRE) < count) syscall(SYS_sched_yield);
  for (i = 0; i < count && !polls; ++i) complete_one(on[i]);
  begin();
  __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
  for (i = 0; i < count; ++i) {
    check(pthread_join(threads[i].id, NULL), "pthread_join");
    left += threads[i].left;
  }
  if (left) give_up();
  else end(polls ? "poll" : "post", kind, count * EACH);
  return left;
}

static void count_threads(const char *kind, struct ibv_qp *const *on, int count) {
  int i, tries;

  for (tries = 0; tries < TRIES; ++tries) {
    expect(run_threads(kind, on, count, 0) == 0, "post");
    for (i = 0; i < 4 * count * (tries + 1); ++i) wait_for_device();
    if (run_threads(kind, on, count, 1) == 0) return;
    for (i = 0; i < count; ++i)
      for (; threads[i].left; threads[i].left -= poll_one(on[i]->send_cq)) run_device();
  }
  expect(0, "the device is too slow");
}

int main(int argc, char **argv) {
  struct ibv_qp *apart[THREADS], *together[THREADS];
  int i;

  if (argc < 2 || (strcmp(argv[1], "base") && strcmp(argv[1], "exp"))) {
    fprintf(stderr, "usage: %s base|exp [-g GID_INDEX]\n", argv[0]);
    return 1;
  }
  use_exp = !strcmp(argv[1], "exp");
  if (argc == 4 && !strcmp(argv[2], "-g")) gid_index = atoi(argv[3]);
  open_device();
  mr = ibv_reg_mr(pd, bytes, sizeof(bytes), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  if (!mr) die("ibv_reg_mr");
  prepare();
  for (i = 0; i < THREADS; ++i) apart[i] = make(EACH);
  together[0] = make(THREADS * EACH);
  for (i = 1; i < THREADS; ++i) together[i] = together[0];
  for (i = 0; i < ROUNDS; ++i) {
    count_threads("1-thread", apart, 1);
    count_threads("8-threads-apart", apart, THREADS);
    count_threads("8-threads-together", together, THREADS);
    count_harness();
  }

  for (i = 0; i < THREADS; ++i) destroy(apart[i]);
  destroy(together[0]);
  check(ibv_dereg_mr(mr), "ibv_dereg_mr");
  check(ibv_destroy_ah(ah), "ibv_destroy_ah");
  check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
  check(ibv_close_device(context), "ibv_close_device");
  return 0;
}
