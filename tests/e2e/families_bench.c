/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The work that families_bench.py counts instructions of, under callgrind: the
 * same frames through libmlx5's own functions and through the families.
 */
#include <time.h>
#include <valgrind/callgrind.h>

#include "../samples/raw_packet.h"

#define BURST 16
#define BYTES 200
#define SLOT 2048

struct queue {
  struct ibv_cq *send_cq, *recv_cq;
  struct ibv_qp *qp;
  struct ibv_flow *flow;
};

static struct queue native, family;
static struct ibv_exp_qp_burst_family *burst;
static struct ibv_exp_cq_family *sent, *received;
static uint8_t *memory;
static struct ibv_mr *mr;
static struct ibv_send_wr requests[BURST];
static struct ibv_sge pieces[BURST];
static struct ibv_wc wc[BURST];

static void create(struct queue *q, uint8_t mac) {
  q->send_cq = create_cq(64);
  q->recv_cq = create_cq(64);
  q->qp = create_raw_qp(q->send_cq, q->recv_cq, 64);
  if (q == &family) {
    burst = query_family(IBV_EXP_INTF_QP_BURST, q->qp, 0);
    sent = query_family(IBV_EXP_INTF_CQ, q->send_cq, 0);
    received = query_family(IBV_EXP_INTF_CQ, q->recv_cq, 0);
  }
  start_qp(q->qp);
  q->flow = steer_udp(q->qp, mac, 9);
}

static void aim(uint8_t mac) {
  int i;

  for (i = 0; i < BURST; ++i) {
    make_frame((uint64_t)i, memory + i * SLOT, mac, 9);
    /* One length for all: what is measured does not depend on it. */
    put16(memory + i * SLOT + 16, BYTES - 14);
    put16(memory + i * SLOT + 38, BYTES - 34);
  }
}

static void post_receives(struct queue *q) {
  int i;

  for (i = 0; i < BURST; ++i) {
    struct ibv_sge piece = {(uintptr_t)(memory + (BURST + i) * SLOT), SLOT, mr->lkey};
    struct ibv_recv_wr wr = {.sg_list = &piece, .num_sge = 1}, *bad;

    check(ibv_post_recv(q->qp, &wr, &bad), "ibv_post_recv");
  }
}

/* The device works in a thread of its own, which a busy machine may keep waiting. */
static void wait_for_device(int tries) {
  const long ms = 50 * (1 + tries);
  const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};

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

#define MEASURE(phase, work) \
  do {                       \
    begin();                 \
    work;                    \
    end(phase);              \
  } while (0)

static int all_there(struct ibv_cq *cq, int count) {
  int got = 0, turns;

  for (turns = 0; got < count && turns < 1000; ++turns) {
    int n = ibv_poll_cq(cq, count - got, wc);

    if (n < 0) die("ibv_poll_cq");
    got += n;
    if (!n) wait_for_device(0);
  }
  return got == count;
}

static void link_requests(int count) {
  int i;

  for (i = 0; i < count; ++i) requests[i].next = i + 1 < count ? &requests[i + 1] : NULL;
}

static void native_phases(int warm) {
  struct ibv_send_wr *bad;
  int n, sends, tries;

  aim(1);
  link_requests(1);
  if (warm) check(ibv_post_send(native.qp, requests, &bad), "ibv_post_send");
  else MEASURE("native-post-1", check(ibv_post_send(native.qp, requests, &bad), ""));
  if (!all_there(native.send_cq, 1)) die("native send");
  for (tries = 0; tries < 20; ++tries) {
    post_receives(&native);
    if (!tries) all_there(native.recv_cq, 0);
    link_requests(BURST);
    if (warm || tries) check(ibv_post_send(native.qp, requests, &bad), "ibv_post_send");
    else MEASURE("native-post-16", check(ibv_post_send(native.qp, requests, &bad), ""));
    wait_for_device(tries);
    begin();
    n = ibv_poll_cq(native.send_cq, BURST, wc);
    if (n == BURST && !warm) end("native-poll-send-16");
    else CALLGRIND_TOGGLE_COLLECT;
    sends = n;
    if (!all_there(native.send_cq, BURST - n)) die("native sends");
    begin();
    n = ibv_poll_cq(native.recv_cq, BURST, wc);
    if (n == BURST && !warm) end("native-poll-receive-16");
    else CALLGRIND_TOGGLE_COLLECT;
    if (!all_there(native.recv_cq, BURST - n)) die("native receives");
    if (sends == BURST && n == BURST) return;
  }
  die("the device is too slow");
}

static void family_phases(int warm) {
  uint32_t flags, copied;
  int n, sends, i, tries;

  aim(2);
  if (!warm) begin();
  check(burst->send_pending(family.qp, pieces[0].addr, pieces[0].length, pieces[0].lkey,
                            IBV_EXP_QP_BURST_SIGNALED),
        "send_pending");
  check(burst->send_flush(family.qp), "send_flush");
  if (!warm) end("family-post-1");
  if (!all_there(family.send_cq, 1)) die("family send");
  for (tries = 0; tries < 20; ++tries) {
    post_receives(&family);
    if (!warm && !tries) begin();
    check(burst->send_burst(family.qp, pieces, BURST, IBV_EXP_QP_BURST_SIGNALED), "send_burst");
    if (!warm && !tries) end("family-post-16");
    wait_for_device(tries);
    begin();
    n = sent->poll_cnt(family.send_cq, BURST);
    if (n == BURST && !warm) end("family-poll-send-16");
    else CALLGRIND_TOGGLE_COLLECT;
    sends = n;
    if (!all_there(family.send_cq, BURST - n)) die("family sends");
    begin();
    for (n = 0, i = 0; i < BURST; ++i)
      n += received->poll_length_flags(family.recv_cq, NULL, &copied, &flags) > 0;
    if (n == BURST && !warm) end("family-poll-receive-16");
    else CALLGRIND_TOGGLE_COLLECT;
    if (!all_there(family.recv_cq, BURST - n)) die("family receives");
    if (sends == BURST && n == BURST) return;
  }
  die("the device is too slow");
}

int main(void) {
  int i, with_families;

  open_device();
  memory = aligned_alloc(4096, 2 * BURST * SLOT);
  memset(memory, 0, 2 * BURST * SLOT);
  mr = register_memory(memory, 2 * BURST * SLOT);
  create(&native, 1);
  /* The families are the engine's. */
  with_families = !getenv("IBVEXP_ENGINE") || strcmp(getenv("IBVEXP_ENGINE"), "native");
  if (with_families) create(&family, 2);
  for (i = 0; i < BURST; ++i) {
    pieces[i].addr = (uintptr_t)(memory + i * SLOT);
    pieces[i].length = BYTES;
    pieces[i].lkey = mr->lkey;
    requests[i].sg_list = &pieces[i];
    requests[i].num_sge = 1;
    requests[i].opcode = IBV_WR_SEND;
    requests[i].send_flags = IBV_SEND_SIGNALED;
  }
  /* Once to bind symbols and touch memory, once to count. */
  native_phases(1);
  if (with_families) family_phases(1);
  native_phases(0);
  if (with_families) family_phases(0);
  return 0;
}
