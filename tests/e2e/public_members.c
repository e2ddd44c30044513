/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Takes the objects of rdma-core's verbs through the verbs that change them, and prints all
 * their public members after each, and what queues are granted. public_members.py compares the
 * output with and without the library.
 *
 *   public_members [-g GID-INDEX]
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum what {
  number,   /* printed as it is */
  identity, /* differs between runs: may not change in one */
  pointer,  /* printed by the name of what it leads to */
  mutex,
  condition
};

struct member {
  const char *name;
  size_t at, bytes, alignment;
  enum what what;
};

#define MEMBER(type, name, what)                                          \
  {                                                                       \
#name, offsetof(struct type, name), sizeof(((struct type *)0)->name), \
        _Alignof(__typeof__(((struct type *)0)->name)), what              \
  }

static const struct member of_channel[] = {MEMBER(ibv_comp_channel, context, pointer),
                                           MEMBER(ibv_comp_channel, fd, identity),
                                           MEMBER(ibv_comp_channel, refcnt, number)};
static const struct member of_cq[] = {MEMBER(ibv_cq, context, pointer),
                                      MEMBER(ibv_cq, channel, pointer),
                                      MEMBER(ibv_cq, cq_context, pointer),
                                      MEMBER(ibv_cq, handle, identity),
                                      MEMBER(ibv_cq, cqe, number),
                                      MEMBER(ibv_cq, mutex, mutex),
                                      MEMBER(ibv_cq, cond, condition),
                                      MEMBER(ibv_cq, comp_events_completed, number),
                                      MEMBER(ibv_cq, async_events_completed, number)};
static const struct member of_qp[] = {MEMBER(ibv_qp, context, pointer),
                                      MEMBER(ibv_qp, qp_context, pointer),
                                      MEMBER(ibv_qp, pd, pointer),
                                      MEMBER(ibv_qp, send_cq, pointer),
                                      MEMBER(ibv_qp, recv_cq, pointer),
                                      MEMBER(ibv_qp, srq, pointer),
                                      MEMBER(ibv_qp, handle, identity),
                                      MEMBER(ibv_qp, qp_num, identity),
                                      MEMBER(ibv_qp, state, number),
                                      MEMBER(ibv_qp, qp_type, number),
                                      MEMBER(ibv_qp, mutex, mutex),
                                      MEMBER(ibv_qp, cond, condition),
                                      MEMBER(ibv_qp, events_completed, number)};
static const struct member of_srq[] = {MEMBER(ibv_srq, context, pointer),
                                       MEMBER(ibv_srq, srq_context, pointer),
                                       MEMBER(ibv_srq, pd, pointer),
                                       MEMBER(ibv_srq, handle, identity),
                                       MEMBER(ibv_srq, mutex, mutex),
                                       MEMBER(ibv_srq, cond, condition),
                                       MEMBER(ibv_srq, events_completed, number)};
static const struct member of_wq[] = {
    MEMBER(ibv_wq, context, pointer),    MEMBER(ibv_wq, wq_context, pointer),
    MEMBER(ibv_wq, pd, pointer),         MEMBER(ibv_wq, cq, pointer),
    MEMBER(ibv_wq, wq_num, identity),    MEMBER(ibv_wq, handle, identity),
    MEMBER(ibv_wq, state, number),       MEMBER(ibv_wq, wq_type, number),
    MEMBER(ibv_wq, post_recv, identity), MEMBER(ibv_wq, mutex, mutex),
    MEMBER(ibv_wq, cond, condition),     MEMBER(ibv_wq, events_completed, number),
    MEMBER(ibv_wq, comp_mask, number)};

#define TYPE(of, name) \
  { #name, of, COUNT(of), sizeof(struct name) }
static const struct type {
  const char *name;
  const struct member *members;
  size_t count, bytes;
} types[] = {TYPE(of_channel, ibv_comp_channel), TYPE(of_cq, ibv_cq), TYPE(of_qp, ibv_qp),
             TYPE(of_srq, ibv_srq), TYPE(of_wq, ibv_wq)};
enum { channels, cqs, qps, srqs, wqs };

static void die(const char *what) {
  fprintf(stderr, "%s: %s\n", what, strerror(errno));
  exit(1);
}

static void check(int error, const char *what) {
  if (error == 0) return;
  if (error > 0) errno = error;
  die(what);
}

static void *made(void *object, const char *what) {
  if (!object) die(what);
  return object;
}

/* No member is left out: one begins where the one before it ends. */
static void check_tables(void) {
  size_t i, k, end;

  for (i = 0; i < COUNT(types); ++i) {
    for (end = 0, k = 0; k < types[i].count; ++k) {
      const struct member *member = &types[i].members[k];
      const size_t due = (end + member->alignment - 1) / member->alignment * member->alignment;

      if (member->at != due) {
        fprintf(stderr, "%s: a member in front of %s is not listed\n", types[i].name, member->name);
        exit(1);
      }
      end = member->at + member->bytes;
    }
    if ((end + 7) / 8 * 8 != types[i].bytes) {
      fprintf(stderr, "%s: its last member is not listed\n", types[i].name);
      exit(1);
    }
  }
}

/* Objects by name, with their members as they were at first. */
static struct known {
  const char *name;
  const void *object;
  const struct type *type;
  char first[256];
} known[64];
static size_t known_count;

static void name(const char *as, const void *object) {
  known[known_count].name = as;
  known[known_count++].object = object;
}

static void *watch(const char *as, int type, const void *object) {
  made((void *)object, as);
  known[known_count].type = &types[type];
  memcpy(known[known_count].first, object, types[type].bytes);
  name(as, object);
  return (void *)object;
}

static void forget(const void *object) {
  size_t i;

  for (i = 0; i < known_count; ++i)
    if (known[i].object == object) known[i].object = known[i].type = NULL;
}

static const char *name_of(const void *object) {
  size_t i;

  if (!object) return "none";
  for (i = 0; i < known_count; ++i)
    if (known[i].object == object) return known[i].name;
  return "unknown";
}

/* A line for each member, behind the verbs so far and the last one. */
static void show(int verbs, const char *verb, const struct known *of) {
  size_t k;

  for (k = 0; k < of->type->count; ++k) {
    const struct member *member = &of->type->members[k];
    char *at = (char *)of->object + member->at;

    printf("%d %s: %s.%s=", verbs, verb, of->name, member->name);
    switch (member->what) {
      case number: printf("%d", *(int *)at); break;
      case pointer: printf("%s", name_of(*(void **)at)); break;
      case identity:
        printf(memcmp(at, of->first + member->at, member->bytes) == 0 ? "same" : "changed");
        break;
      case mutex: {
        const int error = pthread_mutex_trylock((pthread_mutex_t *)at);

        printf("%s", error ? strerror(error) : "free");
        if (!error) pthread_mutex_unlock((pthread_mutex_t *)at);
        break;
      }
      case condition: printf("%d", pthread_cond_broadcast((pthread_cond_t *)at)); break;
    }
    printf("\n");
  }
}

/* What a verb has left behind. */
static void after(const char *verb, int answer) {
  static int verbs;
  size_t i;

  printf("%d %s: %d\n", ++verbs, verb, answer);
  for (i = 0; i < known_count; ++i)
    if (known[i].type) show(verbs, verb, &known[i]);
}

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static char bytes[4096];
static int gid_index = -1;

static void modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, enum ibv_qp_state to, int mask) {
  attr->qp_state = to;
  check(ibv_modify_qp(qp, attr, mask | IBV_QP_STATE), "ibv_modify_qp");
}

static void to_rtr(struct ibv_qp *qp, uint32_t peer) {
  struct ibv_qp_attr attr = {0};
  struct ibv_port_attr port;

  check(ibv_query_port(context, 1, &port), "ibv_query_port");
  attr.port_num = 1;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  modify(qp, &attr, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  after("INIT", 0);
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer;
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = 12;
  attr.ah_attr.dlid = port.lid;
  attr.ah_attr.port_num = 1;
  if (gid_index >= 0) {
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.sgid_index = (uint8_t)gid_index;
    attr.ah_attr.grh.hop_limit = 1;
    check(ibv_query_gid(context, 1, gid_index, &attr.ah_attr.grh.dgid), "ibv_query_gid");
  }
  modify(qp, &attr, IBV_QPS_RTR,
         IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
             IBV_QP_MIN_RNR_TIMER);
  after("RTR", 0);
}

static void to_rts(struct ibv_qp *qp) {
  struct ibv_qp_attr attr = {0};

  attr.timeout = 14;
  attr.retry_cnt = attr.rnr_retry = 7;
  attr.max_rd_atomic = 1;
  modify(qp, &attr, IBV_QPS_RTS,
         IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
             IBV_QP_MAX_QP_RD_ATOMIC);
  after("RTS", 0);
}

static struct ibv_qp *create_qp(const char *as, struct ibv_cq *cq, struct ibv_srq *srq) {
  struct ibv_qp_init_attr attr = {0};

  attr.qp_context = bytes;
  attr.send_cq = attr.recv_cq = cq;
  attr.srq = srq;
  attr.cap.max_send_wr = 64;
  attr.cap.max_recv_wr = srq ? 0 : 16;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
  attr.qp_type = IBV_QPT_RC;
  attr.sq_sig_all = 1;
  return watch(as, qps, ibv_create_qp(pd, &attr));
}

static void destroy_qp(struct ibv_qp *qp) {
  check(ibv_destroy_qp(qp), "ibv_destroy_qp");
  forget(qp);
}

static struct ibv_cq *create_cq(const char *as, int cqe, struct ibv_comp_channel *channel) {
  return watch(as, cqs, ibv_create_cq(context, cqe, bytes + 1, channel, 0));
}

static void destroy_cq(struct ibv_cq *cq) {
  check(ibv_destroy_cq(cq), "ibv_destroy_cq");
  forget(cq);
}

/* rkey: 0 for a message that takes a receive. */
static void send_one(struct ibv_qp *qp, uint32_t rkey) {
  struct ibv_sge piece = {(uintptr_t)bytes, 8, mr->lkey};
  struct ibv_send_wr wr = {0}, *bad;

  wr.sg_list = &piece;
  wr.num_sge = 1;
  wr.opcode = rkey ? IBV_WR_RDMA_WRITE : IBV_WR_SEND;
  wr.wr.rdma.remote_addr = (uintptr_t)bytes + 64;
  wr.wr.rdma.rkey = rkey;
  check(ibv_post_send(qp, &wr, &bad), "ibv_post_send");
}

static void receive_shared(struct ibv_srq *srq) {
  struct ibv_sge piece = {(uintptr_t)bytes + 128, 64, mr->lkey};
  struct ibv_recv_wr wr = {0}, *bad;

  wr.sg_list = &piece;
  wr.num_sge = 1;
  check(ibv_post_srq_recv(srq, &wr, &bad), "ibv_post_srq_recv");
}

static void take(struct ibv_cq *cq, int count) {
  struct ibv_wc wc;
  int found;

  while (count > 0) {
    found = ibv_poll_cq(cq, 1, &wc);
    if (found < 0) die("ibv_poll_cq");
    count -= found;
  }
  after("ibv_poll_cq", 0);
}

static void take_event(struct ibv_comp_channel *channel) {
  struct ibv_cq *cq = NULL;
  void *value = NULL;

  check(ibv_get_cq_event(channel, &cq, &value), "ibv_get_cq_event");
  printf("event of %s, %s\n", name_of(cq), name_of(value));
}

static void async_event(void) {
  struct ibv_async_event event;

  check(ibv_get_async_event(context, &event), "ibv_get_async_event");
  printf("event %s of %s\n", ibv_event_type_str(event.event_type), name_of(event.element.qp));
  after("ibv_get_async_event", 0);
  ibv_ack_async_event(&event);
  after("ibv_ack_async_event", 0);
}

static void connected(struct ibv_qp *a, struct ibv_qp *b) {
  to_rtr(a, b->qp_num);
  to_rts(a);
  to_rtr(b, a->qp_num);
  to_rts(b);
}

static void states(void) {
  struct ibv_cq *cq = create_cq("states-cq", 64, NULL);
  struct ibv_qp *a = create_qp("a", cq, NULL), *b = create_qp("b", cq, NULL);
  struct ibv_qp_attr attr = {0};
  struct ibv_qp_init_attr init;
  struct ibv_modify_cq_attr moderation = {.attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = {2, 1}};

  after("created", 0);
  attr.qp_state = IBV_QPS_RTS;
  after("too early", ibv_modify_qp(a, &attr, IBV_QP_STATE) != 0);
  connected(a, b);
  after("ibv_resize_cq", ibv_resize_cq(cq, 100));
  after("ibv_resize_cq", ibv_resize_cq(cq, 1));
  after("ibv_resize_cq", ibv_resize_cq(cq, 1 << 30) != 0);
  after("ibv_modify_cq", ibv_modify_cq(cq, &moderation));
  /* The other side refuses the write: both are in the error state, of which only a query tells. */
  send_one(a, mr->rkey + 1);
  take(cq, 1);
  async_event();
  after("ibv_query_qp", ibv_query_qp(a, &attr, IBV_QP_PORT, &init));
  after("ibv_query_qp", ibv_query_qp(a, &attr, IBV_QP_STATE, &init));
  after("ibv_query_qp", ibv_query_qp(b, &attr, IBV_QP_STATE | IBV_QP_CAP, &init));
  modify(a, &attr, IBV_QPS_RESET, 0);
  after("RESET", 0);
  modify(b, &attr, IBV_QPS_RESET, 0);
  connected(a, b);
  attr.qp_state = IBV_QPS_SQD;
  after("SQD", ibv_modify_qp(a, &attr, IBV_QP_STATE) != 0);
  modify(a, &attr, IBV_QPS_ERR, 0);
  after("ERR", 0);
  destroy_qp(a);
  destroy_qp(b);
  after("ibv_destroy_qp", 0);
  destroy_cq(cq);
}

static void events(void) {
  struct ibv_comp_channel *channel = watch("channel", channels, ibv_create_comp_channel(context));
  struct ibv_cq *cq = create_cq("cq", 64, channel), *full = create_cq("full", 1, channel);
  struct ibv_srq_init_attr with = {.srq_context = bytes + 2, .attr = {16, 1, 0}};
  struct ibv_srq *srq = watch("srq", srqs, ibv_create_srq(pd, &with));
  struct ibv_srq_attr limit = {.max_wr = 0, .max_sge = 0, .srq_limit = 2};
  struct ibv_qp *a = create_qp("a", cq, NULL), *b = create_qp("b", cq, srq),
                *c = create_qp("c", full, NULL);
  struct ibv_qp_attr attr = {0};
  int i;

  after("created", 0);
  for (i = 0; i < 3; ++i) receive_shared(srq);
  to_rtr(a, b->qp_num);
  to_rts(a);
  to_rtr(b, a->qp_num);
  to_rtr(c, c->qp_num);
  to_rts(c);
  /* The first message in state RTR. */
  after("ibv_req_notify_cq", ibv_req_notify_cq(cq, 0));
  send_one(a, 0);
  take_event(channel);
  after("ibv_get_cq_event", 0);
  ibv_ack_cq_events(cq, 1);
  after("ibv_ack_cq_events", 0);
  take(cq, 2);
  async_event();
  for (i = 0; i < 3; ++i) {
    after("ibv_req_notify_cq", ibv_req_notify_cq(cq, 0));
    send_one(a, mr->rkey);
    take_event(channel);
    take(cq, 1);
  }
  after("ibv_get_cq_event", 0);
  ibv_ack_cq_events(cq, 0);
  after("ibv_ack_cq_events", 0);
  ibv_ack_cq_events(cq, 3);
  after("ibv_ack_cq_events", 0);

  after("ibv_modify_srq", ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT));
  send_one(a, 0);
  take(cq, 2);
  async_event();
  modify(b, &attr, IBV_QPS_ERR, 0);
  async_event();

  /* More completions than it takes. */
  for (i = 0; i <= full->cqe; ++i) send_one(c, mr->rkey);
  send_one(c, mr->rkey);
  async_event();

  destroy_qp(a);
  destroy_qp(b);
  destroy_qp(c);
  after("ibv_destroy_qp", 0);
  check(ibv_destroy_srq(srq), "ibv_destroy_srq");
  forget(srq);
  destroy_cq(cq);
  after("ibv_destroy_cq", 0);
  destroy_cq(full);
  after("ibv_destroy_cq", 0);
  check(ibv_destroy_comp_channel(channel), "ibv_destroy_comp_channel");
  forget(channel);
}

/* What is made by other verbs than the first ones. */
static void extended(void) {
  struct ibv_cq_init_attr_ex cq_attr = {.cqe = 16, .cq_context = bytes + 1};
  struct ibv_cq_ex *cq_ex = made(ibv_create_cq_ex(context, &cq_attr), "ibv_create_cq_ex");
  struct ibv_cq *cq = watch("extended-cq", cqs, ibv_cq_ex_to_cq(cq_ex));
  struct ibv_cq *base = create_cq("base-cq", 16, NULL);
  struct ibv_xrcd_init_attr domain = {
      .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = 0100};
  struct ibv_xrcd *xrcd = made(ibv_open_xrcd(context, &domain), "ibv_open_xrcd");
  struct ibv_srq_init_attr_ex srq_attr = {
      .srq_context = bytes + 2,
      .attr = {16, 1, 0},
      .srq_type = IBV_SRQT_XRC,
      .pd = pd,
      .xrcd = xrcd,
      .cq = base,
      .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                   IBV_SRQ_INIT_ATTR_CQ};
  struct ibv_srq *srq = watch("xrc-srq", srqs, ibv_create_srq_ex(context, &srq_attr));
  struct ibv_qp_init_attr_ex qp_attr = {.qp_context = bytes,
                                        .qp_type = IBV_QPT_XRC_RECV,
                                        .comp_mask = IBV_QP_INIT_ATTR_XRCD,
                                        .xrcd = xrcd};
  struct ibv_qp *target = watch("xrc-target", qps, ibv_create_qp_ex(context, &qp_attr)), *sender;
  struct ibv_qp_attr attr = {.port_num = 1};
  struct ibv_wq_init_attr wq_attr = {.wq_context = bytes + 3,
                                     .wq_type = IBV_WQT_RQ,
                                     .max_wr = 16,
                                     .max_sge = 1,
                                     .pd = pd,
                                     .cq = cq};
  struct ibv_wq_attr to = {.attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY};
  struct ibv_wq *wq;

  memset(&qp_attr, 0, sizeof(qp_attr));
  qp_attr.qp_type = IBV_QPT_UD;
  qp_attr.send_cq = qp_attr.recv_cq = base;
  qp_attr.cap.max_send_wr = qp_attr.cap.max_recv_wr = 1;
  qp_attr.cap.max_send_sge = qp_attr.cap.max_recv_sge = 1;
  qp_attr.comp_mask = IBV_QP_INIT_ATTR_PD;
  qp_attr.pd = pd;
  sender = watch("datagrams", qps, ibv_create_qp_ex(context, &qp_attr));
  after("created", 0);
  modify(target, &attr, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  after("INIT", 0);
  modify(sender, &attr, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
  after("INIT", 0);
  modify(sender, &attr, IBV_QPS_ERR, 0);
  after("ERR", 0);
  wq = ibv_create_wq(context, &wq_attr);
  printf("ibv_create_wq: %s\n", wq ? "made" : "none");
  if (wq) {
    watch("wq", wqs, wq);
    after("created", 0);
    after("ibv_modify_wq", ibv_modify_wq(wq, &to));
    to.wq_state = IBV_WQS_ERR;
    after("ibv_modify_wq", ibv_modify_wq(wq, &to));
    check(ibv_destroy_wq(wq), "ibv_destroy_wq");
    forget(wq);
  }
  destroy_qp(target);
  destroy_qp(sender);
  check(ibv_destroy_srq(srq), "ibv_destroy_srq");
  forget(srq);
  check(ibv_close_xrcd(xrcd), "ibv_close_xrcd");
  destroy_cq(cq);
  destroy_cq(base);
}

/* Acknowledged by several threads while another one destroys the queue. */
enum { acknowledging = 4, acknowledged_by_each = 16 };
static struct ibv_cq *leaving;
static atomic_int destroying, destroyed;
static pid_t destroyer;

static void *acknowledge(void *unused) {
  int i;

  for (i = 0; i < acknowledged_by_each; ++i) ibv_ack_cq_events(leaving, 1);
  return unused;
}

static void *destroy_waiting(void *unused) {
  destroyer = (pid_t)syscall(SYS_gettid);
  destroying = 1;
  check(ibv_destroy_cq(leaving), "ibv_destroy_cq");
  destroyed = 1;
  return unused;
}

static char state_of(pid_t thread) {
  char path[64], state = '?';
  FILE *file;

  snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)thread);
  file = fopen(path, "r");
  if (file) {
    if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = '?';
    fclose(file);
  }
  return state;
}

static void waiting(void) {
  struct ibv_comp_channel *channel = watch("channel", channels, ibv_create_comp_channel(context));
  struct ibv_cq *cq = create_cq("cq", 64, channel);
  struct ibv_qp *a = create_qp("a", cq, NULL);
  pthread_t threads[acknowledging], last;
  int i;

  to_rtr(a, a->qp_num);
  to_rts(a);
  for (i = 0; i < acknowledging * acknowledged_by_each + 1; ++i) {
    struct ibv_cq *from;
    void *value;

    check(ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
    send_one(a, mr->rkey);
    check(ibv_get_cq_event(channel, &from, &value), "ibv_get_cq_event");
    while (ibv_poll_cq(cq, 1, &(struct ibv_wc){0}) == 0) {
    }
  }
  destroy_qp(a);
  leaving = cq;
  for (i = 0; i < acknowledging; ++i)
    check(pthread_create(&threads[i], NULL, acknowledge, NULL), "pthread_create");
  for (i = 0; i < acknowledging; ++i) pthread_join(threads[i], NULL);
  after("ibv_ack_cq_events", 0);
  forget(cq);
  check(pthread_create(&last, NULL, destroy_waiting, NULL), "pthread_create");
  while (!destroying || (!destroyed && state_of(destroyer) != 'S')) {
  }
  printf("one is left: %s\n", destroyed ? "destroyed" : "waits");
  ibv_ack_cq_events(cq, 1);
  pthread_join(last, NULL);
  after("ibv_destroy_cq", 0);
  check(ibv_destroy_comp_channel(channel), "ibv_destroy_comp_channel");
  forget(channel);
}

static void show_sizes(const char *what, const struct ibv_qp_cap *cap) {
  printf("%s: requests %u/%u, pieces %u/%u, inline %u\n", what, cap->max_send_wr, cap->max_recv_wr,
         cap->max_send_sge, cap->max_recv_sge, cap->max_inline_data);
}

/* Nothing is polled, so that requests take their place in the queue for ever. */
static void fill(struct ibv_qp *qp, const char *with, struct ibv_send_wr *wr) {
  struct ibv_send_wr *bad;
  int error, count = 0;

  while ((error = ibv_post_send(qp, wr, &bad)) == 0) ++count;
  printf("%d requests %s, then %s\n", count, with, strerror(error));
}

/* The largest number of pieces, or of bytes inline, that a request may have. */
static void find_largest(struct ibv_qp *qp, struct ibv_send_wr *wr, const char *of) {
  const int inlined = (wr->send_flags & IBV_SEND_INLINE) != 0;
  struct ibv_send_wr *bad;
  int error, count = 0;

  for (error = 0; error == 0; ++count) {
    if (inlined) wr->sg_list->length = (uint32_t)count + 1;
    else wr->num_sge = count + 1;
    error = ibv_post_send(qp, wr, &bad);
    if (error == 0) take(qp->send_cq, 1);
  }
  printf("%d %s, then %s\n", count - 1, of, strerror(error));
}

static void use_all(struct ibv_qp *qp) {
  struct ibv_sge pieces[64];
  struct ibv_send_wr wr = {.sg_list = pieces, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
  size_t i;

  for (i = 0; i < COUNT(pieces); ++i) pieces[i] = (struct ibv_sge){(uintptr_t)bytes, 8, mr->lkey};
  wr.wr.rdma.remote_addr = (uintptr_t)bytes + 2048;
  wr.wr.rdma.rkey = mr->rkey;
  fill(qp, "in RESET", &wr);
  to_rtr(qp, qp->qp_num);
  fill(qp, "in RTR", &wr);
  to_rts(qp);
  find_largest(qp, &wr, "pieces");
  wr.num_sge = 1;
  wr.send_flags = IBV_SEND_INLINE;
  find_largest(qp, &wr, "bytes inline");
  wr.send_flags = 0;
  pieces[0].length = 8;
  fill(qp, "of one piece", &wr);
}

/* Of queues of all sizes: what is granted, and what they take. */
static void sizes(void) {
  static const struct ibv_qp_cap asked[] = {
      {1, 1, 1, 1, 0},     {10, 10, 1, 1, 0},      {10, 10, 4, 4, 0},    {10, 10, 1, 1, 13},
      {100, 7, 2, 3, 64},  {17, 100, 16, 16, 200}, {1000, 0, 30, 0, 0},  {10, 10, 1, 1, 800},
      {32768, 1, 1, 1, 0}, {8192, 1, 1, 1, 0},     {10, 10, 1, 1, 1000}, {0, 10, 0, 1, 0}};
  static const enum ibv_qp_type qp_types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND};
  struct ibv_cq *cq = create_cq("sizes-cq", 4000, NULL);
  struct ibv_srq_init_attr with = {.attr = {10, 1, 0}};
  struct ibv_sge piece = {(uintptr_t)bytes, 8, mr->lkey};
  struct ibv_recv_wr wr = {.sg_list = &piece, .num_sge = 1}, *bad;
  struct ibv_srq_attr of_srq;
  struct ibv_srq *srq;
  size_t i, k;
  int error, count = 0;

  for (i = 0; i < COUNT(qp_types); ++i)
    for (k = 0; k < COUNT(asked); ++k) {
      struct ibv_qp_init_attr init = {
          .send_cq = cq, .recv_cq = cq, .qp_type = qp_types[i], .cap = asked[k], .sq_sig_all = 1};
      struct ibv_qp_attr attr;
      struct ibv_qp *qp = ibv_create_qp(pd, &init);

      printf("type %d, %zu: %s\n", qp_types[i], k, qp ? "made" : strerror(errno));
      show_sizes("asked", &asked[k]);
      show_sizes("granted", &init.cap);
      if (!qp) continue;
      watch("qp", qps, qp);
      check(ibv_query_qp(qp, &attr, IBV_QP_CAP, &init), "ibv_query_qp");
      show_sizes("queried", &attr.cap);
      show_sizes("queried", &init.cap);
      if (qp_types[i] == IBV_QPT_RC && asked[k].max_send_wr < 500) use_all(qp);
      destroy_qp(qp);
    }

  srq = made(ibv_create_srq(pd, &with), "ibv_create_srq");
  printf("srq: granted %u of %u\n", with.attr.max_wr, with.attr.max_sge);
  check(ibv_query_srq(srq, &of_srq), "ibv_query_srq");
  printf("srq: queried %u of %u\n", of_srq.max_wr, of_srq.max_sge);
  while ((error = ibv_post_srq_recv(srq, &wr, &bad)) == 0) ++count;
  printf("srq: %d requests, then %s\n", count, strerror(error));
  check(ibv_destroy_srq(srq), "ibv_destroy_srq");
  destroy_cq(cq);
}

int main(int argc, char **argv) {
  struct ibv_device **list = ibv_get_device_list(NULL);

  if (argc == 3 && strcmp(argv[1], "-g") == 0) gid_index = atoi(argv[2]);
  check_tables();
  if (!list || !list[0]) die("no device");
  context = made(ibv_open_device(list[0]), "ibv_open_device");
  pd = made(ibv_alloc_pd(context), "ibv_alloc_pd");
  mr = made(ibv_reg_mr(pd, bytes, sizeof(bytes), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE),
            "ibv_reg_mr");
  name("context", context);
  name("pd", pd);
  name("value-of-qp", bytes);
  name("value-of-cq", bytes + 1);
  name("value-of-srq", bytes + 2);
  name("value-of-wq", bytes + 3);
  states();
  events();
  extended();
  waiting();
  sizes();
  ibv_dereg_mr(mr);
  ibv_dealloc_pd(pd);
  ibv_close_device(context);
  ibv_free_device_list(list);
  return 0;
}
