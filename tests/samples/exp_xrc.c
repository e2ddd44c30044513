/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Extended reliable connections between two processes, in the style of programs
 * written for OFED: one connection reaches every shared receive queue of the
 * other side's domain, and each message names the one that it is for. Sizes are
 * random; every byte is verified.
 *
 *   exp_xrc [-p PORT] [-n COUNT] [-q QUEUES] [-m old|exp] [-g GID] [-r SEED] [HOST]
 *
 *   -m old  the functions of ofa_verbs.h: domains, receivers known by number
 *   -m exp  ibv_exp_create_srq() and ibv_exp_create_qp() on an ibv_xrcd
 *
 * Without HOST it waits for a client, which sends.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <infiniband/ofa_verbs.h>
#include <infiniband/verbs_exp.h>
#include <netdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
  LONGEST = 4096, /* bytes of a message */
  RECEIVES = 32,  /* per queue */
  UNDER_WAY = 16, /* sends */
  MOST_QUEUES = 16,
};

static struct {
  const char *port, *host;
  int count, queues, gid_index, old;
  unsigned seed;
} options = {"18516", NULL, 1000, 4, -1, 1, 1};

/* What the two sides exchange before they talk over the device. */
struct address {
  uint32_t qp_num, lid, queues[MOST_QUEUES];
  union ibv_gid gid;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static unsigned char *memory;
/* The receiving side has one of the first two, and receive queues. */
static struct ibv_xrc_domain *old_domain;
static struct ibv_xrcd *domain;
static struct ibv_srq *srq[MOST_QUEUES];
static struct ibv_qp *receiver; /* -m exp */
static struct ibv_qp *sender;

static void die(const char *what) {
  fprintf(stderr, "exp_xrc: %s: %s\n", what, strerror(errno));
  exit(1);
}

static void wrong(const char *what, long number) {
  fprintf(stderr, "exp_xrc: %s (%ld)\n", what, number);
  exit(1);
}

static void check(int error, const char *what) {
  if (error) {
    errno = error < 0 ? -error : error;
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

static uint32_t draw(void) {
  static uint64_t state;

  if (!state) state = options.seed;
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return (uint32_t)(state >> 33);
}

static unsigned char letter(uint32_t number, uint32_t i) {
  return (unsigned char)(number * 167 + i * 13 + (i >> 8));
}

static void open_device(size_t size) {
  struct ibv_device **list = ibv_get_device_list(NULL);
  struct ibv_exp_cq_init_attr cq_attr = {0};
  struct ibv_exp_reg_mr_in in = {0};

  if (!list || !list[0]) die("no device");
  context = ibv_open_device(list[0]);
  if (!context) die("ibv_open_device");
  ibv_free_device_list(list);
  pd = ibv_alloc_pd(context);
  cq = ibv_exp_create_cq(context, 1024, NULL, NULL, 0, &cq_attr);
  if (!pd || !cq) die("resources");
  in.pd = pd;
  in.length = size;
  in.exp_access = IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_ALLOCATE_MR;
  mr = ibv_exp_reg_mr(&in);
  if (!mr) die("ibv_exp_reg_mr");
  memory = mr->addr;
}

/* Receiving side */

static void post_receive(int queue, uint64_t slot) {
  struct ibv_sge sge = {(uintptr_t)memory + slot * LONGEST, LONGEST, mr->lkey};
  struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;

  check(ibv_post_srq_recv(srq[queue], &wr, &bad), "ibv_post_srq_recv");
}

/* A domain by a file that other processes could open too. */
static void open_domain(void) {
  char name[] = "/tmp/exp_xrc.XXXXXX";
  struct ibv_xrcd_init_attr attr = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS};
  int fd = mkstemp(name);

  if (fd < 0) die(name);
  if (options.old) {
    old_domain = ibv_open_xrc_domain(context, fd, O_CREAT);
    if (!old_domain) die("ibv_open_xrc_domain");
  } else {
    attr.fd = fd;
    attr.oflags = O_CREAT;
    domain = ibv_open_xrcd(context, &attr);
    if (!domain) die("ibv_open_xrcd");
  }
  close(fd);
  unlink(name);
}

static uint32_t create_queue(int i) {
  struct ibv_srq_init_attr attr = {.attr = {.max_wr = RECEIVES, .max_sge = 1}};
  struct ibv_exp_create_srq_attr exp_attr = {.pd = pd, .xrcd = domain, .cq = cq};
  uint32_t number;

  if (options.old) {
    srq[i] = ibv_create_xrc_srq(pd, old_domain, cq, &attr);
    if (!srq[i]) die("ibv_create_xrc_srq");
    return ((struct ibv_srq_legacy *)srq[i])->xrc_srq_num;
  }
  exp_attr.base = attr;
  exp_attr.srq_type = IBV_EXP_SRQT_XRC;
  exp_attr.comp_mask = IBV_EXP_CREATE_SRQ_CQ | IBV_EXP_CREATE_SRQ_XRCD;
  srq[i] = ibv_exp_create_srq(context, &exp_attr);
  if (!srq[i]) die("ibv_exp_create_srq");
  check(ibv_get_srq_num(srq[i], &number), "ibv_get_srq_num");
  return number;
}

static uint32_t create_receiver(void) {
  struct ibvexp_xrc_qp_init_attr attr = {.base = {.qp_type = IBV_QPT_XRC}};
  struct ibv_exp_qp_init_attr exp_attr = {.qp_type = IBV_QPT_XRC_RECV};
  uint32_t number;

  if (options.old) {
    attr.xrc_domain = old_domain;
    check(ibv_create_xrc_rcv_qp(&attr.base, &number), "ibv_create_xrc_rcv_qp");
    return number;
  }
  exp_attr.comp_mask = IBV_EXP_QP_INIT_ATTR_XRCD;
  exp_attr.xrcd = domain;
  receiver = ibv_exp_create_qp(context, &exp_attr);
  if (!receiver) die("ibv_exp_create_qp");
  return receiver->qp_num;
}

/* Both sides: RESET to RTR, and on to RTS for who sends. */
static void bring_up(struct ibv_qp *qp, uint32_t number, const struct address *peer) {
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
  int step, mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;

  for (step = 0; step < (qp == sender ? 3 : 2); ++step) {
    if (step == 1) {
      attr.qp_state = IBV_QPS_RTR;
      attr.path_mtu = IBV_MTU_1024;
      attr.dest_qp_num = peer->qp_num;
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
      mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    } else if (step == 2) {
      attr.qp_state = IBV_QPS_RTS;
      attr.timeout = 14;
      attr.retry_cnt = attr.rnr_retry = 7;
      attr.max_rd_atomic = 1;
      mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
             IBV_QP_MAX_QP_RD_ATOMIC;
    }
    if (qp) check(ibv_modify_qp(qp, &attr, mask), "ibv_modify_qp");
    else check(ibv_modify_xrc_rcv_qp(old_domain, number, &attr, mask), "ibv_modify_xrc_rcv_qp");
  }
}

static void receive_all(void) {
  int left = options.count, i;
  uint64_t slot;

  for (slot = 0; slot < (uint64_t)options.queues * RECEIVES; ++slot)
    post_receive((int)(slot / RECEIVES), slot);
  while (left) {
    unsigned char *data;
    struct ibv_exp_wc wc;
    uint32_t header[3];
    int n = ibv_exp_poll_cq(cq, 1, &wc, sizeof(wc));

    check(n < 0 ? -n : 0, "ibv_exp_poll_cq");
    if (!n) continue;
    if (wc.status != IBV_WC_SUCCESS || wc.exp_opcode != IBV_EXP_WC_RECV)
      wrong(ibv_wc_status_str(wc.status), (long)wc.wr_id);
    data = memory + wc.wr_id * LONGEST;
    memcpy(header, data, sizeof(header)); /* number, length, queue */
    if (header[1] != wc.byte_len) wrong("a message of another length", (long)wc.byte_len);
    if (header[2] != wc.wr_id / RECEIVES) wrong("a message for another queue", (long)header[2]);
    for (i = sizeof(header); i < (int)wc.byte_len; ++i)
      if (data[i] != letter(header[0], (uint32_t)i)) wrong("a wrong byte", i);
    post_receive((int)header[2], wc.wr_id);
    --left;
  }
}

static void serve(int fd, struct address *mine) {
  struct address peer;
  int i;

  open_device((size_t)options.queues * RECEIVES * LONGEST);
  open_domain();
  for (i = 0; i < options.queues; ++i) mine->queues[i] = create_queue(i);
  mine->qp_num = create_receiver();
  swap_bytes(fd, mine, &peer, sizeof(peer));
  bring_up(receiver, mine->qp_num, &peer);
  swap_bytes(fd, mine, &peer, sizeof(peer)); /* both are ready */
  receive_all();
  swap_bytes(fd, mine, &peer, sizeof(peer));

  if (options.old) check(ibv_unreg_xrc_rcv_qp(old_domain, mine->qp_num), "ibv_unreg_xrc_rcv_qp");
  else check(ibv_destroy_qp(receiver), "ibv_destroy_qp");
  for (i = 0; i < options.queues; ++i) check(ibv_destroy_srq(srq[i]), "ibv_destroy_srq");
  if (options.old) check(ibv_close_xrc_domain(old_domain), "ibv_close_xrc_domain");
  else check(ibv_close_xrcd(domain), "ibv_close_xrcd");
  printf("%d messages to %d queues over one connection: all bytes verified\n", options.count,
         options.queues);
}

/* Sending side */

static void create_sender(void) {
  struct ibvexp_xrc_qp_init_attr attr = {
      .base = {.send_cq = cq,
               .recv_cq = cq,
               .qp_type = IBV_QPT_XRC,
               .cap = {.max_send_wr = UNDER_WAY, .max_send_sge = 1}}};
  struct ibv_exp_qp_init_attr exp_attr = {
      .send_cq = cq,
      .recv_cq = cq,
      .qp_type = IBV_QPT_XRC_SEND,
      .pd = pd,
      // Many programs asked for receives here, too; there are none.
      .cap = {.max_send_wr = UNDER_WAY, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
      .comp_mask = IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS};

  sender = options.old ? ibv_create_qp(pd, &attr.base) : ibv_exp_create_qp(context, &exp_attr);
  if (!sender) die("queue pair");
}

static void wait_for_send(uint64_t number) {
  struct ibv_exp_wc wc;
  int n;

  do {
    n = ibv_exp_poll_cq(cq, 1, &wc, sizeof(wc));
    check(n < 0 ? -n : 0, "ibv_exp_poll_cq");
  } while (!n);
  if (wc.status != IBV_WC_SUCCESS || wc.wr_id != number)
    wrong(ibv_wc_status_str(wc.status), (long)wc.wr_id);
}

static void send_all(const struct address *peer) {
  int number;

  for (number = 0; number < options.count; ++number) {
    uint32_t i, queue = draw() % (uint32_t)options.queues;
    uint32_t length = 12 + draw() % (LONGEST - 12);
    uint32_t header[3] = {(uint32_t)number, length, queue};
    unsigned char *data = memory + number % UNDER_WAY * LONGEST;
    struct ibv_sge sge = {(uintptr_t)data, length, mr->lkey};
    struct ibv_exp_send_wr wr, *bad;

    if (number >= UNDER_WAY) wait_for_send((uint64_t)number - UNDER_WAY);
    memcpy(data, header, sizeof(header));
    for (i = sizeof(header); i < length; ++i) data[i] = letter(header[0], i);
    /* Not cleared: programs never did, and only some members count. */
    memset(&wr, 0xa5, sizeof(wr));
    wr.wr_id = (uint64_t)number;
    wr.next = NULL;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.exp_opcode = IBV_EXP_WR_SEND;
    wr.exp_send_flags = IBV_EXP_SEND_SIGNALED;
    wr.xrc_remote_srq_num = peer->queues[queue];
    check(ibv_exp_post_send(sender, &wr, &bad), "ibv_exp_post_send");
  }
  for (number = number < UNDER_WAY ? 0 : number - UNDER_WAY; number < options.count; ++number)
    wait_for_send((uint64_t)number);
}

static void connect_and_send(int fd, struct address *mine) {
  struct address peer;

  open_device(UNDER_WAY * LONGEST);
  create_sender();
  mine->qp_num = sender->qp_num;
  swap_bytes(fd, mine, &peer, sizeof(peer));
  bring_up(sender, 0, &peer);
  swap_bytes(fd, mine, &peer, sizeof(peer));
  send_all(&peer);
  swap_bytes(fd, mine, &peer, sizeof(peer));
  check(ibv_destroy_qp(sender), "ibv_destroy_qp");
  printf("%d messages sent: all bytes verified\n", options.count);
}

static void fill_address(struct address *mine) {
  struct ibv_device **list = ibv_get_device_list(NULL);
  struct ibv_context *opened = list && list[0] ? ibv_open_device(list[0]) : NULL;
  struct ibv_port_attr port;

  if (!opened) die("ibv_open_device");
  ibv_free_device_list(list);
  check(ibv_query_port(opened, 1, &port), "ibv_query_port");
  mine->lid = port.lid;
  if (options.gid_index >= 0)
    check(ibv_query_gid(opened, 1, options.gid_index, &mine->gid), "ibv_query_gid");
  check(ibv_close_device(opened), "ibv_close_device");
}

int main(int argc, char **argv) {
  struct address mine;
  int fd, option;

  while ((option = getopt(argc, argv, "p:n:q:m:g:r:")) != -1) {
    switch (option) {
      case 'p': options.port = optarg; break;
      case 'n': options.count = atoi(optarg); break;
      case 'q': options.queues = atoi(optarg); break;
      case 'm': options.old = strcmp(optarg, "exp") != 0; break;
      case 'g': options.gid_index = atoi(optarg); break;
      case 'r': options.seed = (unsigned)atoi(optarg); break;
      default: return 2;
    }
  }
  if (options.count < 1 || options.queues < 1 || options.queues > MOST_QUEUES) return 2;
  options.host = argv[optind];
  memset(&mine, 0, sizeof(mine));
  fill_address(&mine);
  fd = meet();
  if (options.host) connect_and_send(fd, &mine);
  else serve(fd, &mine);
  close(fd);
  check(ibv_dereg_mr(mr), "ibv_dereg_mr");
  check(ibv_destroy_cq(cq), "ibv_destroy_cq");
  check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
  check(ibv_close_device(context), "ibv_close_device");
  return 0;
}
