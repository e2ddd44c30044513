/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Receive-side scaling over eight work queues. The client sends frames with random
 * addresses and ports; the server computes the hash of each one itself, looks for
 * the frame in the queue that the hash selects, and compares every byte.
 *
 *   exp_rss [-p PORT] [-n FRAMES] [HOST]
 *
 * Without HOST it is the server. One queue pair hashes one kind of packet, so there
 * are five of them over one indirection table, each with its flow rule, the way
 * poll-mode drivers do it.
 */
#include "raw_packet.h"

#define QUEUES 8
#define DEPTH 256
#define SLOT 512
#define LOG_TABLE 6
#define BATCH 64 /* frames on their way */

enum kind { IPV4_UDP, IPV4_TCP, IPV6_UDP, IPV6_TCP, IPV4_OTHER, KINDS };

static const uint8_t mac[6] = {2, 0, 0, 0, 0, 0x52};
static int frames = 2000;

static int is_ipv6(enum kind kind) { return kind == IPV6_UDP || kind == IPV6_TCP; }

/* Writes frame number n, checksums left out, and returns its length. */
static uint32_t make(int n, uint8_t *frame, enum kind *kind) {
  static const uint8_t protocols[KINDS] = {17, 6, 17, 6, 1};
  uint64_t random = ((uint64_t)n + 1) * 0x9e3779b97f4a7c15u;
  uint32_t bytes = 74 + (uint32_t)(next_random(&random) % 300), i;

  *kind = (enum kind)(next_random(&random) % KINDS);
  for (i = 14; i < bytes; ++i) frame[i] = (uint8_t)(next_random(&random) >> 20);
  memcpy(frame, mac, 6);
  memcpy(frame + 6, "\x02\0\0\0\0\x63", 6);
  if (is_ipv6(*kind)) {
    put16(frame + 12, 0x86dd);
    frame[14] = 0x60;
    put16(frame + 18, bytes - 54);
    frame[20] = protocols[*kind];
  } else {
    put16(frame + 12, 0x0800);
    frame[14] = 0x45;
    put16(frame + 16, bytes - 14);
    put16(frame + 20, 0); /* no fragment */
    frame[23] = protocols[*kind];
  }
  if (*kind == IPV4_UDP) put16(frame + 38, bytes - 34);
  if (*kind == IPV6_UDP) put16(frame + 58, bytes - 54);
  if (*kind == IPV4_TCP) frame[46] = 0x50;
  if (*kind == IPV6_TCP) frame[66] = 0x50;
  return bytes;
}

/* The hash of the RSS specification, with the key that it verifies it with. */
static const uint8_t key[40] = {0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67,
                                0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
                                0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
                                0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};

static uint32_t toeplitz(const uint8_t *input, unsigned bytes) {
  uint32_t hash = 0, window = (uint32_t)key[0] << 24 | key[1] << 16 | key[2] << 8 | key[3];
  unsigned i, bit;

  for (i = 0; i < bytes; ++i)
    for (bit = 0; bit < 8; ++bit) {
      if (input[i] >> (7 - bit) & 1) hash ^= window;
      window = window << 1 | (key[i + 4] >> (7 - bit) & 1);
    }
  return hash;
}

/* Source and destination, first the addresses, then the ports: as in the frame. */
static uint32_t hash_of(const uint8_t *frame, enum kind kind) {
  if (is_ipv6(kind)) return toeplitz(frame + 22, 36);
  return toeplitz(frame + 26, kind == IPV4_OTHER ? 8 : 12);
}

/* The values that the specification gives. */
static void verify_hash(void) {
  static const uint8_t v4[12] = {66, 9, 149, 187, 161, 142, 100, 80, 0x0a, 0xea, 0x06, 0xe6};
  static const uint8_t v6[36] = {0x3f, 0xfe, 0x25, 0x01, 0x02, 0,    0x1f, 0xff, 0,    0,   0, 0, 0,
                                 0,    0,    7,    0x3f, 0xfe, 0x25, 0x01, 0x02, 0,    0,   3, 0, 0,
                                 0,    0,    0,    0,    0,    1,    0x0a, 0xea, 0x06, 0xe6};

  if (toeplitz(v4, 8) != 0x323e8fc2 || toeplitz(v4, 12) != 0x51ccc178 ||
      toeplitz(v6, 32) != 0x2cc18cd5 || toeplitz(v6, 36) != 0x40207d3d) {
    fprintf(stderr, "the hash is wrong\n");
    exit(1);
  }
}

static void generate(int peer) {
  struct ibv_cq *cq = create_cq(2 * BATCH);
  struct ibv_qp *qp = create_raw_qp(cq, cq, BATCH);
  uint8_t *memory = calloc(BATCH, SLOT);
  struct ibv_mr *mr = register_memory(memory, BATCH * SLOT);
  int n;

  start_qp(qp);
  for (n = 0; n < frames; ++n) {
    uint8_t *frame = memory + (size_t)(n % BATCH) * SLOT;
    struct ibv_sge piece = {(uintptr_t)frame, 0, mr->lkey};
    struct ibv_exp_send_wr wr = {.wr_id = (uint64_t)n,
                                 .sg_list = &piece,
                                 .num_sge = 1,
                                 .exp_opcode = IBV_EXP_WR_SEND,
                                 .exp_send_flags = IBV_EXP_SEND_SIGNALED},
                           *bad;
    struct ibv_exp_wc wc;
    enum kind kind;
    int got;

    if (n % BATCH == 0) hear(peer);
    piece.length = make(n, frame, &kind);
    check(ibv_exp_post_send(qp, &wr, &bad), "ibv_exp_post_send");
    while (!(got = ibv_exp_poll_cq(cq, 1, &wc, sizeof(wc)))) sched_yield();
    check(got < 0 ? got : wc.status == IBV_WC_SUCCESS ? 0 : EIO, "sending");
  }
  hear(peer);
  printf("%d frames sent\n", frames);
  check(ibv_destroy_qp(qp), "ibv_destroy_qp");
  check(ibv_destroy_cq(cq), "ibv_destroy_cq");
  check(ibv_dereg_mr(mr), "ibv_dereg_mr");
  free(memory);
}

static struct queue {
  struct ibv_cq *cq;
  struct ibv_exp_wq *wq;
  struct ibv_exp_wq_family *post;
  struct ibv_mr *mr;
  uint8_t *memory;
  unsigned taken;
} queues[QUEUES];

static struct ibv_exp_res_domain *domain; /* one thread drives them */

static void create_domain(void) {
  struct ibv_exp_res_domain_init_attr init = {0};

  init.comp_mask = IBV_EXP_RES_DOMAIN_THREAD_MODEL | IBV_EXP_RES_DOMAIN_MSG_MODEL;
  init.thread_model = IBV_EXP_THREAD_SINGLE;
  init.msg_model = IBV_EXP_MSG_HIGH_BW;
  domain = ibv_exp_create_res_domain(context, &init);
  if (!domain) die("ibv_exp_create_res_domain");
}

static void create_queue(struct queue *q) {
  struct ibv_exp_wq_init_attr init = {0};
  struct ibv_exp_wq_attr state = {0};
  struct ibv_sge list[DEPTH];
  int i;

  q->cq = create_cq(DEPTH);
  init.wq_type = IBV_EXP_WQT_RQ;
  init.max_recv_wr = DEPTH;
  init.max_recv_sge = 1;
  init.pd = pd;
  init.cq = q->cq;
  init.res_domain = domain;
  init.comp_mask = IBV_EXP_CREATE_WQ_RES_DOMAIN;
  q->wq = ibv_exp_create_wq(context, &init);
  if (!q->wq) die("ibv_exp_create_wq");
  q->post = query_family(IBV_EXP_INTF_WQ, q->wq, 0);
  state.attr_mask = IBV_EXP_WQ_ATTR_STATE;
  state.wq_state = IBV_EXP_WQS_RDY;
  check(ibv_exp_modify_wq(q->wq, &state), "ibv_exp_modify_wq");
  for (i = 0; i < DEPTH; ++i)
    list[i] = (struct ibv_sge){(uintptr_t)(q->memory + i * SLOT), SLOT, q->mr->lkey};
  check(q->post->recv_burst(q->wq, list, DEPTH), "recv_burst");
}

static struct ibv_qp *create_hash_qp(enum kind kind, struct ibv_exp_rwq_ind_table *table) {
  static const uint64_t fields[KINDS] = {
      IBV_EXP_RX_HASH_SRC_IPV4 | IBV_EXP_RX_HASH_DST_IPV4 | IBV_EXP_RX_HASH_SRC_PORT_UDP |
          IBV_EXP_RX_HASH_DST_PORT_UDP,
      IBV_EXP_RX_HASH_SRC_IPV4 | IBV_EXP_RX_HASH_DST_IPV4 | IBV_EXP_RX_HASH_SRC_PORT_TCP |
          IBV_EXP_RX_HASH_DST_PORT_TCP,
      IBV_EXP_RX_HASH_SRC_IPV6 | IBV_EXP_RX_HASH_DST_IPV6 | IBV_EXP_RX_HASH_SRC_PORT_UDP |
          IBV_EXP_RX_HASH_DST_PORT_UDP,
      IBV_EXP_RX_HASH_SRC_IPV6 | IBV_EXP_RX_HASH_DST_IPV6 | IBV_EXP_RX_HASH_SRC_PORT_TCP |
          IBV_EXP_RX_HASH_DST_PORT_TCP,
      IBV_EXP_RX_HASH_SRC_IPV4 | IBV_EXP_RX_HASH_DST_IPV4};
  struct ibv_exp_rx_hash_conf hash = {0};
  struct ibv_exp_qp_init_attr init = {0};
  struct ibv_qp *qp;

  hash.rx_hash_function = IBV_EXP_RX_HASH_FUNC_TOEPLITZ;
  hash.rx_hash_key_len = sizeof(key);
  hash.rx_hash_key = (uint8_t *)key;
  hash.rx_hash_fields_mask = fields[kind];
  hash.rwq_ind_tbl = table;
  init.qp_type = IBV_QPT_RAW_PACKET;
  init.comp_mask = IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_RX_HASH |
                   IBV_EXP_QP_INIT_ATTR_PORT | IBV_EXP_QP_INIT_ATTR_RES_DOMAIN;
  init.pd = pd;
  init.res_domain = domain;
  init.port_num = 1;
  init.rx_hash_conf = &hash;
  qp = ibv_exp_create_qp(context, &init);
  if (!qp) die("ibv_exp_create_qp");
  return qp;
}

/* All packets of a kind that are sent to us. */
static struct ibv_exp_flow *steer(struct ibv_qp *qp, enum kind kind) {
  struct {
    struct ibv_exp_flow_attr attr;
    struct ibv_exp_flow_spec_eth eth;
    struct ibv_exp_flow_spec_tcp_udp ports;
  } rule; /* without gaps */
  struct ibv_exp_flow *flow;

  memset(&rule, 0, sizeof(rule));
  rule.attr.type = IBV_EXP_FLOW_ATTR_NORMAL;
  rule.attr.size = sizeof(rule);
  rule.attr.num_of_specs = 2;
  rule.attr.port = 1;
  rule.eth.type = IBV_EXP_FLOW_SPEC_ETH;
  rule.eth.size = sizeof(rule.eth);
  memcpy(rule.eth.val.dst_mac, mac, 6);
  memset(rule.eth.mask.dst_mac, 0xff, 6);
  rule.eth.val.ether_type = htons(is_ipv6(kind) ? 0x86dd : 0x0800);
  rule.eth.mask.ether_type = 0xffff;
  /* Any port: the protocol alone. */
  rule.ports.type =
      kind == IPV4_TCP || kind == IPV6_TCP ? IBV_EXP_FLOW_SPEC_TCP : IBV_EXP_FLOW_SPEC_UDP;
  rule.ports.size = sizeof(rule.ports);
  if (kind == IPV4_OTHER) {
    rule.attr.size -= sizeof(rule.ports);
    rule.attr.num_of_specs = 1;
    rule.attr.priority = 1; /* what is left over */
  }
  flow = ibv_exp_create_flow(qp, &rule.attr);
  if (!flow) die("ibv_exp_create_flow");
  return flow;
}

static void expect(int n, const unsigned *queue_of) {
  uint8_t frame[SLOT];
  enum kind kind;
  uint32_t bytes = make(n, frame, &kind), hash = hash_of(frame, kind);
  struct queue *q = &queues[queue_of[hash & ((1 << LOG_TABLE) - 1)]];
  uint8_t *slot = q->memory + (q->taken % DEPTH) * SLOT;
  struct ibv_sge again = {(uintptr_t)slot, SLOT, q->mr->lkey};
  struct ibv_exp_wc wc;
  int got;

  while (!(got = ibv_exp_poll_cq(q->cq, 1, &wc, sizeof(wc)))) sched_yield();
  if (got < 0 || wc.status != IBV_WC_SUCCESS || wc.exp_opcode != IBV_EXP_WC_RECV ||
      wc.byte_len != bytes || memcmp(slot, frame, bytes)) {
    fprintf(stderr, "frame %d, kind %d, hash %#x: not in its queue\n", n, kind, hash);
    exit(1);
  }
  ++q->taken;
  memset(slot, 0, bytes);
  check(q->post->recv_burst(q->wq, &again, 1), "recv_burst");
}

static void receive(int peer) {
  struct ibv_exp_device_attr device = {.comp_mask = IBV_EXP_DEVICE_ATTR_RX_HASH |
                                                    IBV_EXP_DEVICE_ATTR_RSS_TBL_SZ};
  struct ibv_exp_rwq_ind_table_init_attr table_init = {0};
  struct ibv_exp_wq *entries[1 << LOG_TABLE];
  unsigned queue_of[1 << LOG_TABLE], i;
  uint8_t *memory = calloc(QUEUES * DEPTH, SLOT);
  struct ibv_mr *mr = register_memory(memory, (size_t)QUEUES * DEPTH * SLOT);
  struct ibv_exp_rwq_ind_table *table;
  struct ibv_exp_flow *flows[KINDS];
  struct ibv_qp *qps[KINDS];
  struct ibv_exp_wc wc;
  int n;

  check(ibv_exp_query_device(context, &device), "ibv_exp_query_device");
  if (!(device.comp_mask & IBV_EXP_DEVICE_ATTR_RX_HASH) ||
      !(device.rx_hash_caps.supported_hash_functions & IBV_EXP_RX_HASH_FUNC_TOEPLITZ) ||
      device.max_rss_tbl_sz < 1 << LOG_TABLE) {
    fprintf(stderr, "the device cannot scale\n");
    exit(1);
  }
  create_domain();
  for (i = 0; i < QUEUES; ++i) {
    queues[i].memory = memory + (size_t)i * DEPTH * SLOT;
    queues[i].mr = mr;
    create_queue(&queues[i]);
  }
  for (i = 0; i < 1 << LOG_TABLE; ++i) {
    queue_of[i] = (i * 3 + i / QUEUES) % QUEUES;
    entries[i] = queues[queue_of[i]].wq;
  }
  table_init.pd = pd;
  table_init.log_ind_tbl_size = LOG_TABLE;
  table_init.ind_tbl = entries;
  table = ibv_exp_create_rwq_ind_table(context, &table_init);
  if (!table) die("ibv_exp_create_rwq_ind_table");
  for (i = 0; i < KINDS; ++i) {
    qps[i] = create_hash_qp((enum kind)i, table);
    flows[i] = steer(qps[i], (enum kind)i);
  }

  for (n = 0; n < frames; ++n) {
    if (n % BATCH == 0) signal_peer(peer);
    expect(n, queue_of);
  }
  signal_peer(peer);
  printf("%d frames over %d queues:", frames, QUEUES);
  for (i = 0; i < QUEUES; ++i) {
    printf(" %u", queues[i].taken);
    if (ibv_exp_poll_cq(queues[i].cq, 1, &wc, sizeof(wc)) != 0 ||
        (int)queues[i].taken < frames / QUEUES / 2) {
      fprintf(stderr, "queue %u has another share\n", i);
      exit(1);
    }
  }
  printf("; all bytes verified\n");

  for (i = 0; i < KINDS; ++i) {
    check(ibv_exp_destroy_flow(flows[i]), "ibv_exp_destroy_flow");
    check(ibv_destroy_qp(qps[i]), "ibv_destroy_qp");
  }
  check(ibv_exp_destroy_rwq_ind_table(table), "ibv_exp_destroy_rwq_ind_table");
  for (i = 0; i < QUEUES; ++i) {
    check(ibv_exp_destroy_wq(queues[i].wq), "ibv_exp_destroy_wq");
    check(ibv_destroy_cq(queues[i].cq), "ibv_destroy_cq");
  }
  check(ibv_exp_destroy_res_domain(context, domain, NULL), "ibv_exp_destroy_res_domain");
  check(ibv_dereg_mr(mr), "ibv_dereg_mr");
  free(memory);
}

int main(int argc, char **argv) {
  const char *port = "18519", *host;
  int option, peer;

  while ((option = getopt(argc, argv, "p:n:")) != -1) {
    if (option == 'p') port = optarg;
    else if (option == 'n') frames = atoi(optarg);
    else return 2;
  }
  host = optind < argc ? argv[optind] : NULL;
  verify_hash();
  open_device();
  peer = meet(host, port);
  if (host) generate(peer);
  else receive(peer);
  close(peer);
  check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
  check(ibv_close_device(context), "ibv_close_device");
  return 0;
}
