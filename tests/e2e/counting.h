/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the programs have in common whose instructions hotpath_bench.py counts under
 * callgrind: phases, and two queue pairs' way to each other.
 */
#ifndef COUNTING_H
#define COUNTING_H

#include <stddef.h>
#include <time.h>

#include "../samples/loopback.h"

#define CHAIN 16
#define TRIES 50

static struct ibv_ah *ah;
static struct ibv_ah_attr path;

#ifdef TIMED
#include "timing.h"
#else
#include <valgrind/callgrind.h>

/* Several times: what is posted where in the queue makes a difference. */
#define ROUNDS (is_stepped() ? 2 : 4)

static inline int is_stepped(void) {
  static int stepped = -1;

  if (stepped < 0) stepped = getenv("COUNTING_STEPS") != NULL;
  return stepped;
}

/* For locked_steps.c, which goes from one to the next. */
static inline void mark(const char *phase) {
#if defined(__x86_64__)
  if (is_stepped()) __asm__ volatile("int3" ::"D"(phase) : "memory");
#else
  (void)phase;
#endif
}

#define MOST_IN_A_ROW CHAIN
static inline int in_a_row(int count) {
  (void)count;
  return 1;
}

static inline void begin(void) {
  mark("");
  CALLGRIND_ZERO_STATS;
  CALLGRIND_TOGGLE_COLLECT;
}

/* In threads beside the one that begins and ends. */
static inline void begin_thread(void) { CALLGRIND_TOGGLE_COLLECT; }
static inline void end_thread(void) { CALLGRIND_TOGGLE_COLLECT; }

/* Not what is to be measured after all. */
static inline void give_up(void) {
  CALLGRIND_TOGGLE_COLLECT;
  mark("");
}

static inline void end(const char *verb, const char *name, int count) {
  char phase[64];

  CALLGRIND_TOGGLE_COLLECT;
  snprintf(phase, sizeof(phase), "%s-%s-%d", verb, name, count);
  mark(phase);
  CALLGRIND_DUMP_STATS_AT(phase);
}

/* The device works in a thread of its own. */
static inline void run_device(void) {}
static inline void wait_for_device(void) {
  const struct timespec pause = {0, 50000000};

  nanosleep(&pause, NULL);
}
#endif

/* The harness by itself. */
static __attribute__((noinline)) int nothing(const void *on) {
  __asm__ volatile("" ::"r"(on) : "memory");
  return 0;
}
static inline void count_harness(void) {
  begin();
  nothing(&path);
  end("harness", "nothing", 1);
}

static inline void open_device(void) {
  struct ibv_device **list = ibv_get_device_list(NULL);
  struct ibv_port_attr port;

  if (!list || !list[0]) die("no device");
  context = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  if (!context) die("ibv_open_device");
  pd = ibv_alloc_pd(context);
  if (!pd) die("ibv_alloc_pd");
  check(ibv_query_port(context, 1, &port), "ibv_query_port");
  path.dlid = port.lid;
  path.port_num = 1;
  if (gid_index >= 0) {
    path.is_global = 1;
    path.grh.sgid_index = (uint8_t)gid_index;
    path.grh.hop_limit = 1;
    check(ibv_query_gid(context, 1, gid_index, &path.grh.dgid), "GID");
  }
  ah = ibv_create_ah(pd, &path);
  if (!ah) die("ibv_create_ah");
}

static inline void to_init(struct ibv_qp *from) {
  struct ibv_qp_attr attr;
  int datagram = from->qp_type == IBV_QPT_UD, raw = from->qp_type == IBV_QPT_RAW_PACKET;

  memset(&attr, 0, sizeof(attr));
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qkey = 0x1111;
  attr.qp_access_flags =
      IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  check(ibv_modify_qp(from, &attr,
                      IBV_QP_STATE | IBV_QP_PORT | (raw ? 0 : IBV_QP_PKEY_INDEX) |
                          (raw        ? 0
                           : datagram ? IBV_QP_QKEY
                                      : IBV_QP_ACCESS_FLAGS)),
        "to INIT");
}

static inline void ready(struct ibv_qp *from, const struct ibv_qp *to) {
  struct ibv_qp_attr attr;
  int connected = from->qp_type != IBV_QPT_UD && from->qp_type != IBV_QPT_RAW_PACKET;

  to_init(from);
  memset(&attr, 0, sizeof(attr));
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = to->qp_num;
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = 12;
  attr.ah_attr = path;
  check(ibv_modify_qp(from, &attr,
                      IBV_QP_STATE | (connected ? IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                                      IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                                      IBV_QP_MIN_RNR_TIMER
                                                : 0)),
        "to RTR");
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = attr.rnr_retry = 7;
  attr.max_rd_atomic = 1;
  check(ibv_modify_qp(from, &attr,
                      IBV_QP_STATE | (from->qp_type == IBV_QPT_RAW_PACKET ? 0 : IBV_QP_SQ_PSN) |
                          (connected ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                           IBV_QP_MAX_QP_RD_ATOMIC
                                     : 0)),
        "to RTS");
}

#endif
