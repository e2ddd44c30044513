/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The work that hotpath_bench.py counts instructions of, under callgrind: requests
 * and completions of each kind, one and sixteen at a time.
 *
 *     hotpath_bench base|exp [-g GID_INDEX]
 *
 * base   through the base verbs, with or without the library
 * exp    through the experimental verbs
 */
#include "../samples/loopback.h"

#include <stddef.h>
#include <time.h>
#include <valgrind/callgrind.h>

#define CHAIN 16
#define BYTES 128

static int use_exp;
static struct ibv_mr *local, *remote;
static unsigned char bytes[2][CHAIN * BYTES];
static struct ibv_sge pieces[CHAIN];
static struct ibv_send_wr base_wr[CHAIN];
static struct ibv_exp_send_wr exp_wr[CHAIN];
static struct ibv_recv_wr recv_wr[CHAIN];
static struct ibv_srq *srq;
static struct ibv_ah *ah;
static struct ibv_qp *rc[2], *on_srq[2], *ud;

/* What is posted where; what is polled are its completions, or the messages. */
static const struct kind {
  const char *name;
  struct ibv_qp **from, **to;
  enum ibv_wr_opcode opcode;
  unsigned int flags;
  int messages;
} kinds[] = {
    {"send", &rc[0], &rc[1], IBV_WR_SEND_WITH_IMM, 0, 1},
    {"srq", &on_srq[0], &on_srq[1], IBV_WR_SEND, 0, 1},
    /* The device puts what is as short as that into the completion. */
    {"short", &rc[0], &rc[1], IBV_WR_SEND, 0, 1},
    {"write", &rc[0], &rc[1], IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0},
    {"read", &rc[0], &rc[1], IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 0},
    {"cas", &rc[0], &rc[1], IBV_WR_ATOMIC_CMP_AND_SWP, IBV_SEND_SIGNALED, 0},
    {"inline", &rc[0], &rc[1], IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED | IBV_SEND_INLINE, 0},
    {"ud", &ud, &ud, IBV_WR_SEND, 0, 1},
};

static void open_device(void) {
  struct ibv_device **list = ibv_get_device_list(NULL);
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                     IBV_ACCESS_REMOTE_ATOMIC;

  if (!list || !list[0]) die("no device");
  context = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  if (!context) die("ibv_open_device");
  pd = ibv_alloc_pd(context);
  if (!pd) die("ibv_alloc_pd");
  cq = ibv_create_cq(context, 128, NULL, NULL, 0);
  if (!cq) die("ibv_create_cq");
  local = ibv_reg_mr(pd, bytes[0], sizeof(bytes[0]), access);
  remote = ibv_reg_mr(pd, bytes[1], sizeof(bytes[1]), access);
  if (!local || !remote) die("ibv_reg_mr");
}

static struct ibv_qp *make(enum ibv_qp_type type, struct ibv_srq *from) {
  struct ibv_qp_init_attr attr;
  struct ibv_qp *made;

  memset(&attr, 0, sizeof(attr));
  attr.send_cq = attr.recv_cq = cq;
  attr.srq = from;
  attr.qp_type = type;
  attr.cap.max_send_wr = attr.cap.max_recv_wr = 64;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
  attr.cap.max_inline_data = 32;
  made = ibv_create_qp(pd, &attr);
  if (!made) die("ibv_create_qp");
  return made;
}

static void ready(struct ibv_qp *from, const struct ibv_qp *to) {
  struct ibv_port_attr port;
  struct ibv_qp_attr attr;
  int datagram = from->qp_type == IBV_QPT_UD;

  check(ibv_query_port(context, 1, &port), "ibv_query_port");
  memset(&attr, 0, sizeof(attr));
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qkey = 0x1111;
  attr.qp_access_flags =
      IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  check(ibv_modify_qp(from, &attr,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                          (datagram ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)),
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
  if (datagram && !ah && !(ah = ibv_create_ah(pd, &attr.ah_attr))) die("ibv_create_ah");
  check(ibv_modify_qp(from, &attr,
                      IBV_QP_STATE | (datagram ? 0
                                               : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                                     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                                     IBV_QP_MIN_RNR_TIMER)),
        "to RTR");
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = attr.rnr_retry = 7;
  attr.max_rd_atomic = 1;
  check(ibv_modify_qp(from, &attr,
                      IBV_QP_STATE | IBV_QP_SQ_PSN |
                          (datagram ? 0
                                    : IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                          IBV_QP_MAX_QP_RD_ATOMIC)),
        "to RTS");
}

static void prepare(const struct kind *kind, int count) {
  int i;

  for (i = 0; i < count; ++i) {
    struct ibv_send_wr *wr = &base_wr[i];

    pieces[i].addr = (uintptr_t)(bytes[0] + i * BYTES);
    pieces[i].length = kind->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? 8
                       : kind->flags & IBV_SEND_INLINE           ? 32
                       : kind->name[1] == 'h'                    ? 16
                                                                 : 64;
    pieces[i].lkey = local->lkey;
    memset(wr, 0, sizeof(*wr));
    wr->sg_list = &pieces[i];
    wr->num_sge = 1;
    wr->opcode = kind->opcode;
    wr->send_flags = kind->flags;
    if (kind->opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
      wr->wr.atomic.remote_addr = (uintptr_t)bytes[1];
      wr->wr.atomic.rkey = remote->rkey;
    } else if (kind->from == &ud) {
      wr->wr.ud.ah = ah;
      wr->wr.ud.remote_qpn = ud->qp_num;
      wr->wr.ud.remote_qkey = 0x1111;
    } else if (!kind->messages) {
      wr->wr.rdma.remote_addr = (uintptr_t)bytes[1];
      wr->wr.rdma.rkey = remote->rkey;
    }
    wr->next = i + 1 < count ? &base_wr[i + 1] : NULL;
    /* The same, in the legacy layout. */
    memset(&exp_wr[i], 0xa5, sizeof(exp_wr[i]));
    memcpy(&exp_wr[i], wr, offsetof(struct ibv_exp_send_wr, task));
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

static void end(const char *verb, const char *name, int count) {
  char phase[64];

  CALLGRIND_TOGGLE_COLLECT;
  snprintf(phase, sizeof(phase), "%s-%s-%d", verb, name, count);
  CALLGRIND_DUMP_STATS_AT(phase);
}

/* Not inlined, for the program's own share to be the inlines' alone. */
static __attribute__((noinline)) int post_base(struct ibv_qp *on) {
  struct ibv_send_wr *bad;

  return ibv_post_send(on, base_wr, &bad);
}
static __attribute__((noinline)) int post_exp(struct ibv_qp *on) {
  struct ibv_exp_send_wr *bad;

  return ibv_exp_post_send(on, exp_wr, &bad);
}
static __attribute__((noinline)) int poll_base(int count) {
  static struct ibv_wc wc[CHAIN];

  return ibv_poll_cq(cq, count, wc);
}
static __attribute__((noinline)) int poll_exp(int count) {
  static struct ibv_exp_wc wc[CHAIN];

  return ibv_exp_poll_cq(cq, count, wc, sizeof(wc[0]));
}
static __attribute__((noinline)) int post_recv(struct ibv_qp *on) {
  struct ibv_recv_wr *bad;

  return ibv_post_recv(on, recv_wr, &bad);
}
static __attribute__((noinline)) int post_srq_recv(struct ibv_srq *on) {
  struct ibv_recv_wr *bad;

  return ibv_post_srq_recv(on, recv_wr, &bad);
}
static __attribute__((noinline)) int nothing(struct ibv_qp *on) {
  __asm__ volatile("" ::"r"(on) : "memory");
  return 0;
}

static int post_some(struct ibv_qp *on) { return use_exp ? post_exp(on) : post_base(on); }

/* What is posted has where to go. */
static void post_receives(const struct kind *kind, int count) {
  static struct ibv_sge piece;
  int i, error;

  if (!kind->messages) return;
  piece.addr = (uintptr_t)bytes[1];
  piece.length = BYTES;
  piece.lkey = remote->lkey;
  for (i = 0; i < count; ++i) {
    recv_wr[i].sg_list = &piece;
    recv_wr[i].num_sge = 1;
    recv_wr[i].next = i + 1 < count ? &recv_wr[i + 1] : NULL;
  }
  begin();
  error = (*kind->to)->srq ? post_srq_recv(srq) : post_recv(*kind->to);
  end("recv", kind->name, count);
  check(error, "post_recv");
}

/* Gives the places of unsignaled requests in the queue back. */
static void reap_sends(const struct kind *kind) {
  struct ibv_send_wr wr, *bad;
  struct ibv_wc wc;
  int n;

  if (kind->flags & IBV_SEND_SIGNALED) return;
  memset(&wr, 0, sizeof(wr));
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.opcode = IBV_WR_RDMA_WRITE;
  if (kind->from == &ud) {
    wr.opcode = IBV_WR_SEND;
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = 0xfffffe; /* nobody's */
  }
  check(ibv_post_send(*kind->from, &wr, &bad), "ibv_post_send");
  while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
    ;
  expect(n == 1 && wc.status == IBV_WC_SUCCESS, "an empty request");
}

static int count_once(const struct kind *kind, int count) {
  int n;

  post_receives(kind, count);
  begin();
  n = post_some(*kind->from);
  end("post", kind->name, count);
  check(n, "post");
  wait_for_device();
  begin();
  n = use_exp ? poll_exp(count) : poll_base(count);
  if (n == count) end("poll", kind->name, count);
  else CALLGRIND_TOGGLE_COLLECT;
  expect(n >= 0, "poll");
  if (n == count) return 1;
  /* All at once, or it is not what is to be measured. */
  while (n < count) n += use_exp ? poll_exp(count - n) : poll_base(count - n);
  return 0;
}

int main(int argc, char **argv) {
  size_t i;
  int round, count, tries, n;

  if (argc < 2 || (strcmp(argv[1], "base") && strcmp(argv[1], "exp"))) {
    fprintf(stderr, "usage: %s base|exp [-g GID_INDEX]\n", argv[0]);
    return 1;
  }
  use_exp = !strcmp(argv[1], "exp");
  if (argc == 4 && !strcmp(argv[2], "-g")) gid_index = atoi(argv[3]);
  open_device();
  {
    struct ibv_srq_init_attr attr;

    memset(&attr, 0, sizeof(attr));
    attr.attr.max_wr = 64;
    attr.attr.max_sge = 1;
    srq = ibv_create_srq(pd, &attr);
    if (!srq) die("ibv_create_srq");
  }
  for (n = 0; n < 2; ++n) {
    rc[n] = make(IBV_QPT_RC, NULL);
    on_srq[n] = make(IBV_QPT_RC, srq);
  }
  ud = make(IBV_QPT_UD, NULL);
  for (n = 0; n < 2; ++n) {
    ready(rc[n], rc[!n]);
    ready(on_srq[n], on_srq[!n]);
  }
  ready(ud, ud);
  /* Several times: what is posted where in the queue makes a difference. */
  for (round = 0; round < 6; ++round) {
    for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); ++i)
      for (count = 1; count <= CHAIN; count += CHAIN - 1) {
        prepare(&kinds[i], count);
        for (tries = 0; !count_once(&kinds[i], count); ++tries) {
          expect(tries < 50, "the device is too slow");
          reap_sends(&kinds[i]);
        }
        reap_sends(&kinds[i]);
      }
    begin();
    n = use_exp ? poll_exp(1) : poll_base(1);
    end("poll", "empty", 1);
    expect(n == 0, "an empty queue");
    begin();
    n = nothing(rc[0]);
    end("harness", "nothing", 1);
  }
  check(ibv_destroy_qp(ud), "ibv_destroy_qp");
  for (n = 0; n < 2; ++n) {
    check(ibv_destroy_qp(rc[n]), "ibv_destroy_qp");
    check(ibv_destroy_qp(on_srq[n]), "ibv_destroy_qp");
  }
  check(ibv_destroy_ah(ah), "ibv_destroy_ah");
  check(ibv_destroy_srq(srq), "ibv_destroy_srq");
  check(ibv_dereg_mr(local), "ibv_dereg_mr");
  check(ibv_dereg_mr(remote), "ibv_dereg_mr");
  stop();
  return 0;
}
