/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A ping-pong through the connection manager, in the style of programs written
 * for MLNX_OFED: librdmacm opens the device, rdma_create_qp_exp() makes the
 * queue pair, messages are posted and polled with experimental verbs. Each side
 * checks every byte that it receives.
 *
 *   exp_cm [-p PORT] [-n COUNT] [-s SIZE] [-u] [HOST]
 *
 * Without HOST it waits for a client. -u: datagrams instead of a connection.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <infiniband/verbs_exp.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GRH = 40, QUEUE = 16 };

static struct {
  const char *port, *host;
  int count, size, datagrams;
} options = {"18517", NULL, 300, 1024, 0};

static struct rdma_event_channel *events;
static struct rdma_cm_id *listener, *id;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_ah *ah; /* datagrams: where the other side is */
static uint32_t remote_qpn, remote_qkey;
static unsigned char *out, *in;

static void die(const char *what) {
  fprintf(stderr, "exp_cm: %s: %s\n", what, strerror(errno));
  exit(1);
}

static void check(int error, const char *what) {
  if (error) {
    if (error > 0) errno = error;
    die(what);
  }
}

/* The next event. Its type is the result; the rest is taken here. */
static enum rdma_cm_event_type next_event(void) {
  struct rdma_cm_event *event;
  enum rdma_cm_event_type type;

  check(rdma_get_cm_event(events, &event), "rdma_get_cm_event");
  type = event->event;
  if (type == RDMA_CM_EVENT_CONNECT_REQUEST) id = event->id;
  if (type == RDMA_CM_EVENT_ESTABLISHED && options.datagrams) {
    ah = ibv_create_ah(id->pd, &event->param.ud.ah_attr);
    if (!ah) die("ibv_create_ah");
    remote_qpn = event->param.ud.qp_num;
    remote_qkey = event->param.ud.qkey;
  }
  rdma_ack_cm_event(event);
  return type;
}

static void expect(enum rdma_cm_event_type wanted) {
  enum rdma_cm_event_type got = next_event();

  if (got != wanted) {
    fprintf(stderr, "exp_cm: %s instead of %s\n", rdma_event_str(got), rdma_event_str(wanted));
    exit(1);
  }
}

static void post_receive(int round) {
  struct ibv_sge piece = {(uintptr_t)in, (uint32_t)(GRH + options.size), mr->lkey};
  struct ibv_recv_wr wr = {.wr_id = 1000000u + (unsigned)round, .sg_list = &piece, .num_sge = 1},
                     *bad;

  check(ibv_post_recv(id->qp, &wr, &bad), "ibv_post_recv");
}

static void create(void) {
  struct ibv_exp_cq_init_attr cq_attr = {0};
  struct ibv_exp_reg_mr_in reg = {0};
  struct ibv_exp_qp_init_attr attr = {0};

  cq = ibv_exp_create_cq(id->verbs, 2 * QUEUE, NULL, NULL, 0, &cq_attr);
  if (!cq) die("ibv_exp_create_cq");
  attr.send_cq = attr.recv_cq = cq;
  attr.cap.max_send_wr = attr.cap.max_recv_wr = QUEUE;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
  attr.qp_type = options.datagrams ? IBV_QPT_UD : IBV_QPT_RC;
  /* No protection domain: the identifier has one. */
  attr.comp_mask = IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS | IBV_EXP_QP_INIT_ATTR_INL_RECV;
  attr.exp_create_flags = IBV_EXP_QP_CREATE_ATOMIC_BE_REPLY;
  attr.max_inl_recv = 64;
  check(rdma_create_qp_exp(id, &attr), "rdma_create_qp_exp");

  reg.pd = id->pd;
  reg.length = GRH + 2 * (size_t)options.size;
  reg.exp_access = IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_ALLOCATE_MR;
  mr = ibv_exp_reg_mr(&reg);
  if (!mr) die("ibv_exp_reg_mr");
  in = mr->addr;
  out = in + GRH + options.size;
  post_receive(0);
}

static struct addrinfo *resolve(void) {
  struct addrinfo hints = {.ai_flags = AI_PASSIVE,
                           .ai_family = AF_INET,
                           .ai_socktype = SOCK_STREAM},
                  *all;

  if (getaddrinfo(options.host, options.port, &hints, &all)) die("address");
  return all;
}

static struct rdma_cm_id *create_id(void) {
  struct rdma_cm_id *made;

  check(rdma_create_id(events, &made, NULL, options.datagrams ? RDMA_PS_UDP : RDMA_PS_TCP),
        "rdma_create_id");
  return made;
}

static void serve(struct rdma_conn_param *param) {
  struct addrinfo *all = resolve();

  listener = create_id();
  check(rdma_bind_addr(listener, all->ai_addr), "rdma_bind_addr");
  check(rdma_listen(listener, 1), "rdma_listen");
  freeaddrinfo(all);
  expect(RDMA_CM_EVENT_CONNECT_REQUEST);
  create();
  param->qp_num = id->qp->qp_num;
  check(rdma_accept(id, param), "rdma_accept");
  if (!options.datagrams) expect(RDMA_CM_EVENT_ESTABLISHED);
}

static void release(void) {
  if (ah) check(ibv_destroy_ah(ah), "ibv_destroy_ah");
  if (id->qp) rdma_destroy_qp(id);
  if (mr) check(ibv_dereg_mr(mr), "ibv_dereg_mr");
  if (cq) check(ibv_destroy_cq(cq), "ibv_destroy_cq");
  check(rdma_destroy_id(id), "rdma_destroy_id");
  if (listener) check(rdma_destroy_id(listener), "rdma_destroy_id");
  ah = NULL;
  mr = NULL;
  cq = NULL;
}

/* One attempt: the server may not listen yet. */
static int connect_once(struct addrinfo *to, struct rdma_conn_param *param) {
  enum rdma_cm_event_type got;

  id = create_id();
  check(rdma_resolve_addr(id, NULL, to->ai_addr, 2000), "rdma_resolve_addr");
  got = next_event();
  if (got == RDMA_CM_EVENT_ADDR_RESOLVED) {
    check(rdma_resolve_route(id, 2000), "rdma_resolve_route");
    expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
    create();
    check(rdma_connect(id, param), "rdma_connect");
    got = next_event();
    if (got == RDMA_CM_EVENT_ESTABLISHED) return 1;
  }
  if (got != RDMA_CM_EVENT_REJECTED && got != RDMA_CM_EVENT_UNREACHABLE &&
      got != RDMA_CM_EVENT_ADDR_ERROR) {
    fprintf(stderr, "exp_cm: %s\n", rdma_event_str(got));
    exit(1);
  }
  release();
  usleep(100000);
  return 0;
}

static void reach(struct rdma_conn_param *param) {
  struct addrinfo *all = resolve();
  int i;

  for (i = 0; i < 100; ++i) {
    if (connect_once(all, param)) {
      freeaddrinfo(all);
      return;
    }
  }
  fprintf(stderr, "exp_cm: no server listens\n");
  exit(1);
}

static unsigned char expected(int round, int from_server, int i) {
  return (unsigned char)(round * 5 + from_server * 77 + i * 11 + (i >> 8));
}

static void send_message(int round, int server) {
  struct ibv_sge piece = {(uintptr_t)out, (uint32_t)options.size, mr->lkey};
  struct ibv_exp_send_wr wr, *bad = NULL;
  int i;

  for (i = 0; i < options.size; ++i) out[i] = expected(round, server, i);
  /* Real programs set what they need and leave the rest. */
  memset(&wr, 0x5c, sizeof(wr));
  wr.wr_id = (unsigned)round;
  wr.next = NULL;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  wr.exp_opcode = IBV_EXP_WR_SEND_WITH_IMM;
  wr.exp_send_flags = IBV_EXP_SEND_SIGNALED;
  wr.ex.imm_data = id->qp->qp_num;
  if (options.datagrams) {
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = remote_qpn;
    wr.wr.ud.remote_qkey = remote_qkey;
  }
  check(ibv_exp_post_send(id->qp, &wr, &bad), "ibv_exp_post_send");
}

/* Waits for the next message, and for the completion of the last send. */
static void receive_message(int round, int server, int *sending) {
  const unsigned char *data = in + (options.datagrams ? GRH : 0);
  struct ibv_exp_wc wc;
  int received = 0, n, i;

  while (!received || *sending) {
    n = ibv_exp_poll_cq(cq, 1, &wc, sizeof(wc));
    check(n < 0 ? -n : 0, "ibv_exp_poll_cq");
    if (!n) continue;
    if (wc.status != IBV_WC_SUCCESS) {
      fprintf(stderr, "exp_cm: completion %llu: %s\n", (unsigned long long)wc.wr_id,
              ibv_wc_status_str(wc.status));
      exit(1);
    }
    if (wc.exp_opcode != IBV_EXP_WC_RECV) {
      *sending = 0;
      continue;
    }
    received = 1;
    if (!(wc.exp_wc_flags & IBV_EXP_WC_QP) || wc.qp != id->qp ||
        !(wc.exp_wc_flags & IBV_EXP_WC_WITH_IMM) ||
        wc.byte_len != (uint32_t)(data - in) + (uint32_t)options.size) {
      fprintf(stderr, "exp_cm: message %d is another one\n", round);
      exit(1);
    }
    /* A server learns here where a datagram comes from. */
    if (options.datagrams && !ah) {
      ah =
          ibv_create_ah_from_wc(id->pd,
                                &(struct ibv_wc){.wc_flags = (unsigned)wc.exp_wc_flags & IBV_WC_GRH,
                                                 .slid = wc.slid,
                                                 .sl = wc.sl,
                                                 .dlid_path_bits = wc.dlid_path_bits},
                                (struct ibv_grh *)in, id->port_num);
      if (!ah) die("ibv_create_ah_from_wc");
      remote_qpn = wc.src_qp;
      remote_qkey = RDMA_UDP_QKEY;
    }
    for (i = 0; i < options.size; ++i) {
      if (data[i] != expected(round, !server, i)) {
        fprintf(stderr, "exp_cm: message %d differs at byte %d\n", round, i);
        exit(1);
      }
    }
  }
}

static void parse(int argc, char **argv) {
  int option;

  while ((option = getopt(argc, argv, "p:n:s:u")) != -1) {
    switch (option) {
      case 'p': options.port = optarg; break;
      case 'n': options.count = atoi(optarg); break;
      case 's': options.size = atoi(optarg); break;
      case 'u': options.datagrams = 1; break;
      default: exit(2);
    }
  }
  if (optind < argc) options.host = argv[optind];
}

int main(int argc, char **argv) {
  struct rdma_conn_param param = {
      .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7};
  int server, round, sending = 0;

  parse(argc, argv);
  server = !options.host;
  events = rdma_create_event_channel();
  if (!events) die("rdma_create_event_channel");
  if (server) serve(&param);
  else reach(&param);

  for (round = 0; round < options.count; ++round) {
    if (!server) {
      sending = 1;
      send_message(round, 0);
    }
    receive_message(round, server, &sending);
    if (round + 1 < options.count) post_receive(round + 1);
    if (server) {
      sending = 1;
      send_message(round, 1);
    }
  }
  /* The last answer leaves before the queue pair goes. */
  while (sending) {
    struct ibv_exp_wc wc;
    int n = ibv_exp_poll_cq(cq, 1, &wc, sizeof(wc));

    check(n < 0 ? -n : 0, "ibv_exp_poll_cq");
    sending = !n;
  }
  if (!options.datagrams) {
    if (!server) check(rdma_disconnect(id), "rdma_disconnect");
    expect(RDMA_CM_EVENT_DISCONNECTED);
  }
  release();
  rdma_destroy_event_channel(events);
  printf("%d messages of %d bytes each way, all bytes verified\n", options.count, options.size);
  return 0;
}
