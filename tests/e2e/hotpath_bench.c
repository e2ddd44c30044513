/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The work that hotpath_bench.py counts instructions of, under callgrind: requests
 * and completions of each kind, one and sixteen at a time.
 *
 *     hotpath_bench base|exp|beside [-g GID_INDEX]
 *
 * base     through the base verbs, with or without the library
 * exp      through the experimental verbs, and frames through the interface families
 * beside   through the base verbs, beside one of each kind of experimental object
 */
#define MOST_AT_ONCE CHAIN
#include "crowd.h"
#include "posting.h"

#define BYTES 128

static struct ibv_mr *local, *remote;
static unsigned char bytes[2][CHAIN * BYTES];
#define MOST_PIECES 4
static struct ibv_sge pieces[CHAIN][MOST_PIECES];
static struct ibv_recv_wr recv_wr[CHAIN];
static struct ibv_srq *srq, *wide_srq;
static struct ibv_qp *rc[2], *on_srq[2], *wide[2], *on_wide_srq[2], *ud, *raw, *lost;
/* Their completions are those of a queue of ibv_create_cq_ex(). */
static struct ibv_qp *modern[2];
static struct ibv_cq *modern_cq;
static struct ibv_mw *windows[MOST_IN_A_ROW];
/* Its completion queue reports events. */
static struct ibv_comp_channel *channel;
static struct ibv_cq *event_cq;
static struct ibv_qp *evented[2];
static struct ibv_flow *raw_flow;
static int ethernet;

/* What is posted where; what is polled are its completions, or the messages. */
static const struct kind {
  const char *name;
  struct ibv_qp **from, **to;
  enum ibv_wr_opcode opcode;
  unsigned int flags;
  int messages;
  int pieces;
} kinds[] = {
    {"send", &rc[0], &rc[1], IBV_WR_SEND_WITH_IMM, 0, 1, 1},
    {"srq", &on_srq[0], &on_srq[1], IBV_WR_SEND, 0, 1, 1},
    /* The device puts what is as short as that into the completion. */
    {"short", &rc[0], &rc[1], IBV_WR_SEND, 0, 1, 1},
    {"write", &rc[0], &rc[1], IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, 1},
    {"read", &rc[0], &rc[1], IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 0, 1},
    {"cas", &rc[0], &rc[1], IBV_WR_ATOMIC_CMP_AND_SWP, IBV_SEND_SIGNALED, 0, 1},
    {"inline", &rc[0], &rc[1], IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED | IBV_SEND_INLINE, 0, 1},
    {"ud", &ud, &ud, IBV_WR_SEND, 0, 1, 1},
    /* Where there is Ethernet: to itself, and to no receiver. */
    {"raw", &raw, &raw, IBV_WR_SEND, 0, 1, 1},
    {"frame", &raw, &raw, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, 1},
    {"send2", &wide[0], &wide[1], IBV_WR_SEND, 0, 1, 2},
    {"send4", &wide[0], &wide[1], IBV_WR_SEND, 0, 1, 4},
    {"srq2", &on_wide_srq[0], &on_wide_srq[1], IBV_WR_SEND, 0, 1, 2},
    {"srq4", &on_wide_srq[0], &on_wide_srq[1], IBV_WR_SEND, 0, 1, 4},
    {"write2", &wide[0], &wide[1], IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, 2},
    {"write4", &wide[0], &wide[1], IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, 4},
    {"inline2", &wide[0], &wide[1], IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED | IBV_SEND_INLINE, 0, 2},
    {"inline4", &wide[0], &wide[1], IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED | IBV_SEND_INLINE, 0, 4},
    {"bind", &rc[0], &rc[1], IBV_WR_BIND_MW, IBV_SEND_SIGNALED, 0, 1},
    /* The same as some above where libmlx5 drives the queues. */
    {"modern", &modern[0], &modern[1], IBV_WR_SEND, 0, 1, 1},
};

static struct ibv_qp *make_on(enum ibv_qp_type type, struct ibv_srq *from, struct ibv_cq *send_cq,
                              struct ibv_cq *recv_cq, uint32_t most_pieces) {
  struct ibv_qp_init_attr attr;
  struct ibv_qp *made;

  memset(&attr, 0, sizeof(attr));
  attr.send_cq = send_cq;
  attr.recv_cq = recv_cq;
  attr.srq = from;
  attr.qp_type = type;
  attr.cap.max_send_wr = attr.cap.max_recv_wr = 64;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = most_pieces;
  attr.cap.max_inline_data = 32;
  made = ibv_create_qp(pd, &attr);
  if (!made) die("ibv_create_qp");
  return made;
}
static struct ibv_qp *make(enum ibv_qp_type type, struct ibv_srq *from) {
  return make_on(type, from, cq, cq, 1);
}

static void make_frames(uint8_t to) {
  static const unsigned char header[16] = {2, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 99, 0x88, 0xb5};
  int i;

  for (i = 0; i < CHAIN; ++i) {
    memcpy(bytes[0] + i * BYTES, header, sizeof(header));
    bytes[0][i * BYTES + 5] = to;
  }
}

static struct ibv_flow *steer(struct ibv_qp *to, uint8_t last_of_mac) {
  struct {
    struct ibv_flow_attr attr;
    struct ibv_flow_spec_eth eth;
  } rule;
  struct ibv_flow *flow;

  memset(&rule, 0, sizeof(rule));
  rule.attr.type = IBV_FLOW_ATTR_NORMAL;
  rule.attr.size = sizeof(rule);
  rule.attr.num_of_specs = 1;
  rule.attr.port = 1;
  rule.eth.type = IBV_FLOW_SPEC_ETH;
  rule.eth.size = sizeof(rule.eth);
  rule.eth.val.dst_mac[0] = 2;
  rule.eth.val.dst_mac[5] = last_of_mac;
  memset(rule.eth.mask.dst_mac, 0xff, 6);
  flow = ibv_create_flow(to, &rule.attr);
  if (!flow) die("ibv_create_flow");
  return flow;
}

/* A window of the second type is bound once. */
static void renew_windows(int count) {
  int i;

  for (i = 0; i < count; ++i) {
    if (windows[i]) check(ibv_dealloc_mw(windows[i]), "ibv_dealloc_mw");
    windows[i] = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
    if (!windows[i]) die("ibv_alloc_mw");
  }
}

static void bind_in(struct ibv_send_wr *wr, struct ibv_mw *window) {
  wr->sg_list = NULL;
  wr->num_sge = 0;
  wr->bind_mw.mw = window;
  wr->bind_mw.rkey = ibv_inc_rkey(window->rkey);
  wr->bind_mw.bind_info.mr = remote;
  wr->bind_mw.bind_info.addr = (uintptr_t)bytes[1];
  wr->bind_mw.bind_info.length = BYTES;
  wr->bind_mw.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_WRITE;
}

static void bind_in_exp(struct ibv_exp_send_wr *exp, const struct ibv_send_wr *wr) {
  exp->exp_opcode = IBV_EXP_WR_BIND_MW;
  exp->bind_mw.mw = wr->bind_mw.mw;
  exp->bind_mw.rkey = wr->bind_mw.rkey;
  exp->bind_mw.bind_info.mr = wr->bind_mw.bind_info.mr;
  exp->bind_mw.bind_info.addr = wr->bind_mw.bind_info.addr;
  exp->bind_mw.bind_info.length = wr->bind_mw.bind_info.length;
  exp->bind_mw.bind_info.exp_mw_access_flags = IBV_EXP_ACCESS_REMOTE_WRITE;
}

/* turn: how often the same was posted before, in a row. */
static void prepare(const struct kind *kind, int count, int turn) {
  const int of = kind->pieces;
  int i, n;

  if (*kind->from == raw) make_frames(kind->messages ? 1 : 9);
  if (kind->opcode == IBV_WR_BIND_MW && turn == 0) renew_windows(in_a_row(count) * count);
  for (i = 0; i < count; ++i) {
    struct ibv_send_wr *wr = &base_wr[i];
    const uint32_t length = kind->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? 8
                            : kind->flags & IBV_SEND_INLINE           ? 32
                            : !strcmp(kind->name, "short")            ? 16
                                                                      : 64;

    for (n = 0; n < of; ++n)
      pieces[i][n] = (struct ibv_sge){(uintptr_t)(bytes[0] + i * BYTES + n * BYTES / of),
                                      length / (uint32_t)of, local->lkey};
    memset(wr, 0, sizeof(*wr));
    wr->sg_list = pieces[i];
    wr->num_sge = of;
    wr->opcode = kind->opcode;
    wr->send_flags = kind->flags;
    if (kind->opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
      wr->wr.atomic.remote_addr = (uintptr_t)bytes[1];
      wr->wr.atomic.rkey = remote->rkey;
    } else if (kind->from == &ud) {
      wr->wr.ud.ah = ah;
      wr->wr.ud.remote_qpn = ud->qp_num;
      wr->wr.ud.remote_qkey = 0x1111;
    } else if (kind->opcode == IBV_WR_BIND_MW) {
      bind_in(wr, windows[turn * count + i]);
    } else if (!kind->messages && kind->from != &raw) {
      wr->wr.rdma.remote_addr = (uintptr_t)bytes[1];
      wr->wr.rdma.rkey = remote->rkey;
    }
    wr->next = i + 1 < count ? &base_wr[i + 1] : NULL;
    /* The same, in the legacy layout. */
    memset(&exp_wr[i], 0xa5, sizeof(exp_wr[i]));
    memcpy(&exp_wr[i], wr, offsetof(struct ibv_exp_send_wr, task));
    exp_wr[i].exp_opcode = (enum ibv_exp_wr_opcode)kind->opcode;
    exp_wr[i].exp_send_flags = kind->flags;
    if (kind->opcode == IBV_WR_BIND_MW) bind_in_exp(&exp_wr[i], wr);
    exp_wr[i].next = i + 1 < count ? &exp_wr[i + 1] : NULL;
  }
}

static __attribute__((noinline)) int post_recv(struct ibv_qp *on) {
  struct ibv_recv_wr *bad;

  return ibv_post_recv(on, recv_wr, &bad);
}
static __attribute__((noinline)) int post_srq_recv(struct ibv_srq *on) {
  struct ibv_recv_wr *bad;

  return ibv_post_srq_recv(on, recv_wr, &bad);
}
/* What is posted has where to go. */
static void post_receives(const struct kind *kind, int count) {
  static struct ibv_sge room[MOST_PIECES];
  const int of = kind->pieces;
  int i, error;

  if (!kind->messages) return;
  for (i = 0; i < of; ++i)
    room[i] = (struct ibv_sge){(uintptr_t)(bytes[1] + i * BYTES / of), BYTES / (uint32_t)of,
                               remote->lkey};
  for (i = 0; i < count; ++i) {
    recv_wr[i].sg_list = room;
    recv_wr[i].num_sge = of;
    recv_wr[i].next = i + 1 < count ? &recv_wr[i + 1] : NULL;
  }
  begin();
  error = (*kind->to)->srq ? post_srq_recv((*kind->to)->srq) : post_recv(*kind->to);
  end("recv", kind->name, count);
  check(error, "post_recv");
}

/* An empty request, to its completion. */
static void complete_one(struct ibv_qp *on) {
  struct ibv_sge piece = {(uintptr_t)bytes[0], 64, local->lkey};
  struct ibv_send_wr wr, *bad;
  struct ibv_wc wc;
  int n;

  memset(&wr, 0, sizeof(wr));
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.opcode = IBV_WR_RDMA_WRITE;
  if (on == ud) {
    wr.opcode = IBV_WR_SEND;
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = 0xfffffe; /* does not exist */
  } else if (on == raw) {
    make_frames(9);
    wr.opcode = IBV_WR_SEND;
    wr.sg_list = &piece;
    wr.num_sge = 1;
  }
  check(ibv_post_send(on, &wr, &bad), "ibv_post_send");
  while ((n = ibv_poll_cq(on->send_cq, 1, &wc)) == 0)
    ;
  expect(n == 1 && wc.status == IBV_WC_SUCCESS, "an empty request");
}

/* Gives the places of unsignaled requests in the queue back. */
static void reap_sends(const struct kind *kind) {
  if (!(kind->flags & IBV_SEND_SIGNALED)) complete_one(*kind->from);
}

/* Another try starts as the first one did: whose completion was the last one is what
   polling remembers. Nothing completes on queue pair lost but errors. */
static void forget(struct ibv_qp *last) { complete_one(last == lost ? on_srq[0] : last); }

static int count_once(const struct kind *kind, int count) {
  int error, turn;

  for (turn = 0; turn < in_a_row(count); ++turn) {
    prepare(kind, count, turn);
    post_receives(kind, count);
    begin();
    error = post_some(*kind->from);
    end("post", kind->name, count);
    check(error, "post");
  }
  wait_for_device();
  return count_polls((*kind->from)->send_cq, kind->name, count, turn * count);
}

/* Receives that end with their queue pair. */
static void count_errors(int count) {
  struct ibv_qp_attr attr;
  struct ibv_sge piece = {(uintptr_t)bytes[1], BYTES, remote->lkey};
  struct ibv_recv_wr wr, *bad;
  int tries, left, all = 0;

  for (tries = 0; !all && tries < TRIES; ++tries) {
    if (tries) forget(rc[0]);
    memset(&attr, 0, sizeof(attr));
    attr.qp_state = IBV_QPS_RESET;
    check(ibv_modify_qp(lost, &attr, IBV_QP_STATE), "to RESET");
    to_init(lost);
    memset(&wr, 0, sizeof(wr));
    wr.sg_list = &piece;
    wr.num_sge = 1;
    for (left = 0; left < in_a_row(count) * count; ++left)
      check(ibv_post_recv(lost, &wr, &bad), "ibv_post_recv");
    attr.qp_state = IBV_QPS_ERR;
    check(ibv_modify_qp(lost, &attr, IBV_QP_STATE), "to ERR");
    wait_for_device();
    all = count_polls(cq, "error", count, left);
  }
  expect(all, "the device is too slow");
}

/* A completion that is waited for. */
static __attribute__((noinline)) int notify(void) { return ibv_req_notify_cq(event_cq, 0); }
static __attribute__((noinline)) int get_event(void) {
  struct ibv_cq *of;
  void *cookie;

  return ibv_get_cq_event(channel, &of, &cookie);
}
static __attribute__((noinline)) int acknowledge(void) {
  ibv_ack_cq_events(event_cq, 1);
  return 0;
}
static void count_call(const char *verb, const char *kind, int (*call)(void)) {
  int error;

  begin();
  error = call();
  end(verb, kind, 1);
  check(error, verb);
}
static void count_event(void) {
  count_call("notify", "event", notify);
  complete_one(evented[0]);
  count_call("get", "event", get_event);
  count_call("ack", "event", acknowledge);
}

/* Windows of the first type, by the verb of their own. */
static void count_bind(void) {
  struct ibv_mw *mine[MOST_IN_A_ROW];
  struct ibv_mw_bind bind;
  int error, i, left;

  memset(&bind, 0, sizeof(bind));
  bind.send_flags = IBV_SEND_SIGNALED;
  bind.bind_info.mr = remote;
  bind.bind_info.addr = (uintptr_t)bytes[1];
  bind.bind_info.length = BYTES;
  bind.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_WRITE;
  for (i = 0; i < in_a_row(1); ++i) {
    mine[i] = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
    if (!mine[i]) die("ibv_alloc_mw");
  }
  for (i = 0; i < in_a_row(1); ++i) {
    begin();
    error = ibv_bind_mw(rc[0], mine[i], &bind);
    end("bind", "window", 1);
    check(error, "ibv_bind_mw");
  }
  for (left = i; left;) left -= poll_some(cq, 1);
  for (i = 0; i < in_a_row(1); ++i) check(ibv_dealloc_mw(mine[i]), "ibv_dealloc_mw");
  forget(rc[0]);
}

/* The same frames through the families. */
static struct {
  struct ibv_qp *qp;
  struct ibv_cq *send_cq, *recv_cq;
  struct ibv_flow *flow;
  struct ibv_exp_qp_burst_family *burst;
  struct ibv_exp_cq_family *poll;
} family;
static struct ibv_sge frames[CHAIN];

static void open_families(void) {
  family.recv_cq = ibv_create_cq(context, 64, NULL, NULL, 0);
  family.send_cq = ibv_create_cq(context, 64, NULL, NULL, 0);
  if (!family.recv_cq || !family.send_cq) die("ibv_create_cq");
  family.qp = make_on(IBV_QPT_RAW_PACKET, NULL, family.send_cq, family.recv_cq, 1);
  ready(family.qp, family.qp);
  family.flow = steer(family.qp, 2);
  family.burst = query_family(IBV_EXP_INTF_QP_BURST, family.qp);
  family.poll = query_family(IBV_EXP_INTF_CQ, family.send_cq);
  query_family(IBV_EXP_INTF_CQ, family.recv_cq);
}

static void close_families(void) {
  check(ibv_destroy_flow(family.flow), "ibv_destroy_flow");
  check(ibv_destroy_qp(family.qp), "ibv_destroy_qp");
  check(ibv_destroy_cq(family.send_cq), "ibv_destroy_cq");
  check(ibv_destroy_cq(family.recv_cq), "ibv_destroy_cq");
}

static __attribute__((noinline)) int send_burst(int count) {
  return family.burst->send_burst(family.qp, frames, (uint32_t)count, IBV_EXP_QP_BURST_SIGNALED);
}
static __attribute__((noinline)) int send_pending(int count) {
  int i;

  for (i = 0; i < count; ++i)
    if (family.burst->send_pending(family.qp, frames[i].addr, frames[i].length, frames[i].lkey,
                                   IBV_EXP_QP_BURST_SIGNALED))
      return 1;
  return family.burst->send_flush(family.qp);
}
static __attribute__((noinline)) int recv_burst(int count) {
  static struct ibv_sge room[CHAIN];
  int i;

  for (i = 0; i < count; ++i) room[i] = (struct ibv_sge){(uintptr_t)bytes[1], BYTES, remote->lkey};
  begin();
  i = family.burst->recv_burst(family.qp, room, (uint32_t)count);
  end("recv", "burst", count);
  return i;
}
static __attribute__((noinline)) int poll_cnt(int count) {
  return family.poll->poll_cnt(family.send_cq, (uint32_t)count);
}
static __attribute__((noinline)) int poll_length(int count) {
  uint32_t copied, flags;
  int i, n = 0;

  for (i = 0; i < count; ++i)
    n += family.poll->poll_length_flags(family.recv_cq, NULL, &copied, &flags) > 0;
  return n;
}

static int count_family(const char *name, int (*poll)(int), int count) {
  int n, left;

  for (left = in_a_row(count) * count; left; left -= n) {
    begin();
    n = poll(count);
    if (n != count) break;
    end("poll", name, count);
  }
  if (!left) return 1;
  give_up();
  for (left -= n; left; left -= n) n = poll(count);
  return 0;
}

static void count_families(int count, int pending) {
  int i, all, tries;

  make_frames(2);
  for (i = 0; i < CHAIN; ++i)
    frames[i] = (struct ibv_sge){(uintptr_t)(bytes[0] + i * BYTES), 64, local->lkey};
  for (tries = 0; tries < TRIES; ++tries) {
    for (i = 0; i < in_a_row(count); ++i) {
      int error;

      check(recv_burst(count), "recv_burst");
      begin();
      error = pending ? send_pending(count) : send_burst(count);
      end("post", pending ? "pending" : "burst", count);
      check(error, "burst family");
    }
    wait_for_device();
    all = count_family("cnt", poll_cnt, count);
    all &= count_family("length", poll_length, count);
    if (all) return;
  }
  expect(0, "the device is too slow");
}

static struct ibv_srq *make_srq(uint32_t most_pieces) {
  struct ibv_srq_init_attr attr;
  struct ibv_srq *made;

  memset(&attr, 0, sizeof(attr));
  attr.attr.max_wr = 64;
  attr.attr.max_sge = most_pieces;
  made = ibv_create_srq(pd, &attr);
  if (!made) die("ibv_create_srq");
  return made;
}

static void create(void) {
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                     IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
  struct ibv_cq_init_attr_ex modern_attr = {.cqe = 128, .wc_flags = IBV_WC_STANDARD_FLAGS};
  struct ibv_port_attr port;
  int n;

  cq = ibv_create_cq(context, 128, NULL, NULL, 0);
  if (!cq) die("ibv_create_cq");
  local = ibv_reg_mr(pd, bytes[0], sizeof(bytes[0]), access);
  remote = ibv_reg_mr(pd, bytes[1], sizeof(bytes[1]), access);
  if (!local || !remote) die("ibv_reg_mr");
  srq = make_srq(1);
  wide_srq = make_srq(MOST_PIECES);
  modern_cq = ibv_cq_ex_to_cq(ibv_create_cq_ex(context, &modern_attr));
  channel = ibv_create_comp_channel(context);
  event_cq = ibv_create_cq(context, 64, NULL, channel, 0);
  if (!modern_cq || !channel || !event_cq) die("completion queues");
  for (n = 0; n < 2; ++n) {
    rc[n] = make(IBV_QPT_RC, NULL);
    on_srq[n] = make(IBV_QPT_RC, srq);
    wide[n] = make_on(IBV_QPT_RC, NULL, cq, cq, MOST_PIECES);
    on_wide_srq[n] = make_on(IBV_QPT_RC, wide_srq, cq, cq, MOST_PIECES);
    modern[n] = make_on(IBV_QPT_RC, NULL, modern_cq, modern_cq, 1);
    evented[n] = make_on(IBV_QPT_RC, NULL, event_cq, event_cq, 1);
  }
  lost = make(IBV_QPT_RC, NULL);
  ud = make(IBV_QPT_UD, NULL);
  for (n = 0; n < 2; ++n) {
    ready(rc[n], rc[!n]);
    ready(on_srq[n], on_srq[!n]);
    ready(wide[n], wide[!n]);
    ready(on_wide_srq[n], on_wide_srq[!n]);
    ready(modern[n], modern[!n]);
    ready(evented[n], evented[!n]);
  }
  ready(ud, ud);
  check(ibv_query_port(context, 1, &port), "ibv_query_port");
  ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
  if (!ethernet) return;
  raw = make(IBV_QPT_RAW_PACKET, NULL);
  ready(raw, raw);
  raw_flow = steer(raw, 1);
}

static void destroy(void) {
  int n;

  if (raw) {
    check(ibv_destroy_flow(raw_flow), "ibv_destroy_flow");
    check(ibv_destroy_qp(raw), "ibv_destroy_qp");
  }
  check(ibv_destroy_qp(ud), "ibv_destroy_qp");
  check(ibv_destroy_qp(lost), "ibv_destroy_qp");
  for (n = 0; n < 2; ++n) {
    check(ibv_destroy_qp(rc[n]), "ibv_destroy_qp");
    check(ibv_destroy_qp(on_srq[n]), "ibv_destroy_qp");
    check(ibv_destroy_qp(wide[n]), "ibv_destroy_qp");
    check(ibv_destroy_qp(on_wide_srq[n]), "ibv_destroy_qp");
    check(ibv_destroy_qp(modern[n]), "ibv_destroy_qp");
    check(ibv_destroy_qp(evented[n]), "ibv_destroy_qp");
  }
  for (n = 0; n < MOST_IN_A_ROW; ++n) check(ibv_dealloc_mw(windows[n]), "ibv_dealloc_mw");
  check(ibv_destroy_cq(modern_cq), "ibv_destroy_cq");
  check(ibv_destroy_cq(event_cq), "ibv_destroy_cq");
  check(ibv_destroy_comp_channel(channel), "ibv_destroy_comp_channel");
  check(ibv_destroy_srq(wide_srq), "ibv_destroy_srq");
  check(ibv_destroy_ah(ah), "ibv_destroy_ah");
  check(ibv_destroy_srq(srq), "ibv_destroy_srq");
  check(ibv_dereg_mr(local), "ibv_dereg_mr");
  check(ibv_dereg_mr(remote), "ibv_dereg_mr");
}

static void count_round(void) {
  size_t i;
  struct ibv_qp *last;
  int count, tries, n;

  for (count = 1; count <= CHAIN; count += CHAIN - 1) {
    last = lost;
    for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); ++i) {
      if (!*kinds[i].from) continue;
      for (tries = 0; !count_once(&kinds[i], count); ++tries) {
        expect(tries < TRIES, "the device is too slow");
        reap_sends(&kinds[i]);
        forget(last);
      }
      reap_sends(&kinds[i]);
      last = *kinds[i].from;
    }
    count_errors(count);
    for (n = 0; count == 1 && n < in_a_row(1); ++n) count_event();
    if (count == 1) count_bind();
    if (family.qp) count_families(count, 0);
    if (family.qp) count_families(count, 1);
  }
  for (count = 0; count < in_a_row(1); ++count) {
    begin();
    n = poll_some(cq, 1);
    end("poll", "empty", 1);
    expect(n == 0, "an empty queue");
  }
  for (n = 0; n < in_a_row(1); ++n) count_harness();
}

int main(int argc, char **argv) {
  int round, beside;

  if (argc < 2 ||
      (strcmp(argv[1], "base") && strcmp(argv[1], "exp") && strcmp(argv[1], "beside"))) {
    fprintf(stderr, "usage: %s base|exp|beside [-g GID_INDEX]\n", argv[0]);
    return 1;
  }
  use_exp = !strcmp(argv[1], "exp");
  beside = !strcmp(argv[1], "beside");
  if (argc == 4 && !strcmp(argv[2], "-g")) gid_index = atoi(argv[3]);
  open_device();
  if (beside) create_crowd();
  create();
  if (use_exp && ethernet) open_families();
  for (round = 0; round < ROUNDS; ++round) count_round();
  if (family.qp) close_families();
  destroy();
  /* Those of the crowd go with the process. */
  if (!beside) stop();
  return 0;
}
