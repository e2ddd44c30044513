/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A ping-pong in the style of programs written for MLNX_OFED: everything that
 * has an experimental form is called by it. Two processes exchange messages
 * over RC or UC, each checks every byte that it receives.
 *
 *   exp_pingpong [-p PORT] [-n COUNT] [-s SIZE] [-c rc|uc] [-g GID] [-t] [HOST]
 *
 * With -t completions carry time stamps, and the time between an early and a late
 * answer is compared with that of the host's clock. Without HOST it waits for a
 * client. Build it against the experimental header alone; no libibverbs_exp is
 * linked:
 *
 *   cc exp_pingpong.c -libverbs
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <infiniband/verbs_exp.h>
#include <netdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static struct {
  const char *port, *host;
  int count, size, gid_index, timed;
  enum ibv_qp_type type;
} options = {"18515", NULL, 1000, 4096, -1, 0, IBV_QPT_RC};

/* What the two sides exchange before they talk over the device. */
struct address {
  uint32_t qp_num, psn, lid;
  union ibv_gid gid;
};

static struct ibv_context *context;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static unsigned char *out, *in;

static void die(const char *what) {
  fprintf(stderr, "exp_pingpong: %s: %s\n", what, strerror(errno));
  exit(1);
}

static void check(int error, const char *what) {
  if (error) {
    errno = error;
    die(what);
  }
}

static int meet(void) {
  struct addrinfo hints = {.ai_flags = AI_PASSIVE,
                           .ai_family = AF_INET,
                           .ai_socktype = SOCK_STREAM},
                  *all;
  int fd, listening, one = 1, i;

  if (getaddrinfo(options.host, options.port, &hints, &all)) die("address");
  for (i = 0; options.host && i < 100; ++i) {
    fd = socket(AF_INET, SOCK_STREAM, 0);
    if (!connect(fd, all->ai_addr, all->ai_addrlen)) {
      freeaddrinfo(all);
      return fd;
    }
    close(fd);
    usleep(100000);
  }
  listening = socket(AF_INET, SOCK_STREAM, 0);
  setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  if (options.host || bind(listening, all->ai_addr, all->ai_addrlen) || listen(listening, 1))
    die("connection");
  freeaddrinfo(all);
  fd = accept(listening, NULL, NULL);
  if (fd < 0) die("accept");
  close(listening);
  return fd;
}

static void swap_bytes(int fd, const void *mine, void *theirs, size_t size) {
  errno = ECONNRESET; /* what there is to say of a peer that has left */
  if (write(fd, mine, size) != (ssize_t)size ||
      recv(fd, theirs, size, MSG_WAITALL) != (ssize_t)size)
    die("exchange");
}

static void create(struct ibv_pd *pd) {
  struct ibv_exp_cq_init_attr cq_attr = {0};
  struct ibv_exp_reg_mr_in reg = {0};
  struct ibv_exp_qp_init_attr attr = {0};

  if (options.timed) {
    cq_attr.comp_mask = IBV_EXP_CQ_INIT_ATTR_FLAGS;
    cq_attr.flags = IBV_EXP_CQ_TIMESTAMP;
  }
  cq = ibv_exp_create_cq(context, 64, NULL, NULL, 0, &cq_attr);
  if (!cq) die("ibv_exp_create_cq");

  /* Memory from the library: the contiguous kind of the time. */
  reg.pd = pd;
  reg.length = 2 * (size_t)options.size;
  reg.exp_access = IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_ALLOCATE_MR;
  mr = ibv_exp_reg_mr(&reg);
  if (!mr) die("ibv_exp_reg_mr");
  out = mr->addr;
  in = out + options.size;

  attr.send_cq = attr.recv_cq = cq;
  attr.cap.max_send_wr = attr.cap.max_recv_wr = 16;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
  attr.qp_type = options.type;
  attr.comp_mask =
      IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_INL_RECV | IBV_EXP_QP_INIT_ATTR_ATOMICS_ARG;
  attr.pd = pd;
  attr.max_inl_recv = 64;
  attr.max_atomic_arg = 8;
  qp = ibv_exp_create_qp(context, &attr);
  if (!qp) die("ibv_exp_create_qp");
}

static void connect_qp(const struct address *mine, const struct address *peer) {
  struct ibv_exp_qp_attr attr = {0};
  int rc = options.type == IBV_QPT_RC;

  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  check(ibv_exp_modify_qp(
            qp, &attr,
            IBV_EXP_QP_STATE | IBV_EXP_QP_PKEY_INDEX | IBV_EXP_QP_PORT | IBV_EXP_QP_ACCESS_FLAGS),
        "to INIT");

  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer->qp_num;
  attr.rq_psn = peer->psn;
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = 12;
  attr.ah_attr.dlid = (uint16_t)peer->lid;
  attr.ah_attr.port_num = 1;
  if (options.gid_index >= 0) {
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.dgid = peer->gid;
    attr.ah_attr.grh.sgid_index = (uint8_t)options.gid_index;
    attr.ah_attr.grh.hop_limit = 1;
  }
  check(ibv_exp_modify_qp(qp, &attr,
                          IBV_EXP_QP_STATE | IBV_EXP_QP_AV | IBV_EXP_QP_PATH_MTU |
                              IBV_EXP_QP_DEST_QPN | IBV_EXP_QP_RQ_PSN |
                              (rc ? IBV_EXP_QP_MAX_DEST_RD_ATOMIC | IBV_EXP_QP_MIN_RNR_TIMER : 0)),
        "to RTR");

  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = attr.rnr_retry = 7;
  attr.sq_psn = mine->psn;
  attr.max_rd_atomic = 1;
  check(ibv_exp_modify_qp(qp, &attr,
                          IBV_EXP_QP_STATE | IBV_EXP_QP_SQ_PSN |
                              (rc ? IBV_EXP_QP_TIMEOUT | IBV_EXP_QP_RETRY_CNT |
                                        IBV_EXP_QP_RNR_RETRY | IBV_EXP_QP_MAX_QP_RD_ATOMIC
                                  : 0)),
        "to RTS");
}

static unsigned char expected(int round, int from_server, int i) {
  return (unsigned char)(round * 7 + from_server * 100 + i * 3 + (i >> 8));
}

static void post_receive(int round) {
  struct ibv_sge piece = {(uintptr_t)in, (uint32_t)options.size, mr->lkey};
  struct ibv_recv_wr wr = {.wr_id = 1000000u + (unsigned)round, .sg_list = &piece, .num_sge = 1},
                     *bad;

  check(ibv_post_recv(qp, &wr, &bad), "ibv_post_recv");
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
  wr.ex.imm_data = htonl((uint32_t)round);
  check(ibv_exp_post_send(qp, &wr, &bad), "ibv_exp_post_send");
}

/* When a message was sent and seen by the host's clock, and when it came by the
 * device's, all in nanoseconds. */
struct moment {
  uint64_t before, after, device;
};

/* A busy machine may stop us in between, which widens what the host can say: of
 * several moments the narrowest counts. */
static void keep_narrowest(struct moment *kept, const struct moment *now) {
  if (!kept->after || now->after - now->before < kept->after - kept->before) *kept = *now;
}

static uint64_t host_clock(void) {
  struct timespec now;

  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t device_time(const struct ibv_exp_wc *wc) {
  struct ibv_exp_values values = {0};

  if (!(wc->exp_wc_flags & IBV_EXP_WC_WITH_TIMESTAMP)) {
    fprintf(stderr, "exp_pingpong: completion without time\n");
    exit(1);
  }
  check(-ibv_exp_query_values(context, IBV_EXP_VALUES_CLOCK_INFO, &values), "ibv_exp_query_values");
  return ibv_exp_cqe_ts_to_ns(&values.clock_info, wc->timestamp);
}

/* The device's interval lies within what the host has seen, give or take 1%. */
static void compare(const struct moment *first, const struct moment *last) {
  double device = (double)(last->device - first->device);
  double least = (double)last->before - (double)first->after;
  double most = (double)(last->after - first->before);

  if (device < 0.99 * least || device > 1.01 * most) {
    fprintf(stderr, "exp_pingpong: %.0f ns by the device, %.0f to %.0f by the host\n", device,
            least, most);
    exit(1);
  }
  printf("device clock / host clock: %.4f over %.1f ms\n", device / ((least + most) / 2),
         device / 1e6);
}

/* Waits for the next message (and, in passing, for completions of sends). Returns
 * its time if there are times. */
static uint64_t receive_message(int round, int from_server) {
  struct ibv_exp_wc wc;
  int n, i;

  for (;;) {
    n = ibv_exp_poll_cq(cq, 1, &wc, sizeof(wc));
    check(n < 0 ? -n : 0, "ibv_exp_poll_cq");
    if (!n) continue;
    if (wc.status != IBV_WC_SUCCESS) {
      fprintf(stderr, "exp_pingpong: completion %llu: %s\n", (unsigned long long)wc.wr_id,
              ibv_wc_status_str(wc.status));
      exit(1);
    }
    if (!(wc.exp_wc_flags & IBV_EXP_WC_QP) || wc.qp != qp) {
      fprintf(stderr, "exp_pingpong: completion without its QP\n");
      exit(1);
    }
    if (wc.exp_opcode == IBV_EXP_WC_RECV) break;
  }
  if (wc.byte_len != (uint32_t)options.size || !(wc.exp_wc_flags & IBV_EXP_WC_WITH_IMM) ||
      wc.imm_data != htonl((uint32_t)round)) {
    fprintf(stderr, "exp_pingpong: message %d is another one\n", round);
    exit(1);
  }
  for (i = 0; i < options.size; ++i) {
    if (in[i] != expected(round, from_server, i)) {
      fprintf(stderr, "exp_pingpong: message %d differs at byte %d\n", round, i);
      exit(1);
    }
  }
  return options.timed ? device_time(&wc) : 0;
}

static void parse(int argc, char **argv) {
  int option;

  while ((option = getopt(argc, argv, "p:n:s:c:g:t")) != -1) {
    switch (option) {
      case 'p': options.port = optarg; break;
      case 'n': options.count = atoi(optarg); break;
      case 's': options.size = atoi(optarg); break;
      case 'g': options.gid_index = atoi(optarg); break;
      case 't': options.timed = 1; break;
      case 'c': options.type = strcmp(optarg, "uc") ? IBV_QPT_RC : IBV_QPT_UC; break;
      default: exit(2);
    }
  }
  if (optind < argc) options.host = argv[optind];
}

int main(int argc, char **argv) {
  struct address mine = {0}, peer;
  struct moment first = {0}, last = {0}, now = {0};
  struct ibv_device **list;
  struct ibv_port_attr port;
  struct ibv_pd *pd;
  int fd, round, server;
  char token = 0;

  parse(argc, argv);
  server = !options.host;
  list = ibv_get_device_list(NULL);
  if (!list || !list[0]) die("no device");
  context = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  if (!context) die("ibv_open_device");
  check(ibv_query_port(context, 1, &port), "ibv_query_port");
  pd = ibv_alloc_pd(context);
  if (!pd) die("ibv_alloc_pd");
  create(pd);

  mine.qp_num = qp->qp_num;
  mine.psn = (uint32_t)getpid() & 0xffffff;
  mine.lid = port.lid;
  if (options.gid_index >= 0) check(ibv_query_gid(context, 1, options.gid_index, &mine.gid), "GID");
  fd = meet();
  swap_bytes(fd, &mine, &peer, sizeof(mine));
  connect_qp(&mine, &peer);
  post_receive(0);
  swap_bytes(fd, &token, &token, 1);

  for (round = 0; round < options.count; ++round) {
    now.before = host_clock();
    if (!server) send_message(round, 0);
    now.device = receive_message(round, !server);
    now.after = host_clock();
    if (round <= options.count / 4) keep_narrowest(&first, &now);
    if (round >= options.count - 1 - options.count / 4) keep_narrowest(&last, &now);
    if (options.timed && !server) usleep(1000);
    if (round + 1 < options.count) post_receive(round + 1);
    if (server) send_message(round, 1);
  }
  if (options.timed && !server) compare(&first, &last);
  swap_bytes(fd, &token, &token, 1);
  close(fd);

  check(ibv_destroy_qp(qp), "ibv_destroy_qp");
  check(ibv_dereg_mr(mr), "ibv_dereg_mr");
  check(ibv_destroy_cq(cq), "ibv_destroy_cq");
  check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
  check(ibv_close_device(context), "ibv_close_device");
  printf("%d messages of %d bytes each way, all bytes verified\n", options.count, options.size);
  return 0;
}
