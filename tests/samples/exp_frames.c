/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Raw Ethernet in the style of programs written for MLNX_OFED. The client sends
 * UDP frames, or TCP streams that the device cuts into segments; the server gets
 * them by a flow rule and checks every byte.
 *
 *   exp_frames [-p PORT] [-n COUNT] [-m flow|sniff|tso] [-w FILE] [HOST]
 *
 *   flow   the rule takes one UDP port; frames to others are sent in between
 *   sniff  a sniffer: all frames, written to FILE as tcpdump would
 *   tso    streams of 64000 bytes, put together again
 *
 * Without HOST it is the server. Build it against the experimental header alone;
 * no libibverbs_exp is linked:
 *
 *   cc exp_frames.c -libverbs
 */
#include "raw_packet.h"

enum {
  SLOT = 2048,
  DEPTH = 256,
  ETH = 14,
  IP = 20,
  UDP = 8,
  TCP = 20,
  STREAM = 64000,
  MSS = 1448,
  WANTED = 5001,
  OTHER = 5002
};

static struct {
  const char *port, *host, *mode, *file;
  int count;
} options = {"18516", NULL, "flow", NULL, 500};

static const unsigned char server_mac[6] = {2, 0x65, 0x78, 0x70, 0, 1};
static const unsigned char client_mac[6] = {2, 0x65, 0x78, 0x70, 0, 2};

static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static unsigned char *memory;

static void wrong(const char *what, int number) {
  fprintf(stderr, "exp_frames: %s (%d)\n", what, number);
  exit(1);
}

static unsigned get16(const unsigned char *p) { return (unsigned)p[0] << 8 | p[1]; }

static unsigned char content(int number, int i) {
  return (unsigned char)(number * 13 + i * 7 + (i >> 8));
}

/* Headers of a frame; the device fills in the checksums. Returns their length. */
static int headers(unsigned char *f, int protocol, int port, int payload) {
  int l4 = protocol == IPPROTO_UDP ? UDP : TCP;

  memset(f, 0, (size_t)(ETH + IP + l4));
  memcpy(f, server_mac, 6);
  memcpy(f + 6, client_mac, 6);
  put16(f + 12, 0x0800);
  f += ETH;
  f[0] = 0x45;
  put16(f + 2, (unsigned)(IP + l4 + payload));
  f[8] = 64;
  f[9] = (unsigned char)protocol;
  put16(f + 12, 0x0a00);
  put16(f + 14, 2);
  put16(f + 16, 0x0a00);
  put16(f + 18, 1);
  f += IP;
  put16(f, 4000);
  put16(f + 2, (unsigned)port);
  if (protocol == IPPROTO_UDP) {
    put16(f + 4, (unsigned)(UDP + payload));
  } else {
    f[12] = TCP / 4 << 4;
    f[13] = 0x10;
    put16(f + 14, 1000);
  }
  return ETH + IP + l4;
}

static void create(void) {
  struct ibv_exp_cq_init_attr cq_attr = {0};
  struct ibv_exp_qp_init_attr attr = {0};
  struct ibv_exp_qp_attr modify = {0};

  cq = ibv_exp_create_cq(context, 2 * DEPTH, NULL, NULL, 0, &cq_attr);
  memory = calloc(DEPTH, SLOT);
  mr = ibv_reg_mr(pd, memory, (size_t)DEPTH * SLOT, IBV_ACCESS_LOCAL_WRITE);
  if (!cq || !mr) die("CQ or memory");

  attr.send_cq = attr.recv_cq = cq;
  attr.cap.max_send_wr = attr.cap.max_recv_wr = DEPTH;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
  attr.qp_type = IBV_QPT_RAW_ETH;
  attr.comp_mask = IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_MAX_TSO_HEADER;
  attr.pd = pd;
  attr.max_tso_header = ETH + IP + TCP;
  qp = ibv_exp_create_qp(context, &attr);
  if (!qp) die("ibv_exp_create_qp");
  modify.qp_state = IBV_QPS_INIT;
  modify.port_num = 1;
  check(ibv_exp_modify_qp(qp, &modify, IBV_EXP_QP_STATE | IBV_EXP_QP_PORT), "to INIT");
  modify.qp_state = IBV_QPS_RTR;
  check(ibv_exp_modify_qp(qp, &modify, IBV_EXP_QP_STATE), "to RTR");
  modify.qp_state = IBV_QPS_RTS;
  check(ibv_exp_modify_qp(qp, &modify, IBV_EXP_QP_STATE), "to RTS");
}

static struct ibv_exp_flow *steer(void) {
  struct {
    struct ibv_exp_flow_attr attr;
    struct ibv_exp_flow_spec_eth eth;
    struct ibv_exp_flow_spec_ipv4 ip;
    struct ibv_exp_flow_spec_tcp_udp udp;
  } rule; /* without gaps */
  struct ibv_exp_flow *flow;

  memset(&rule, 0, sizeof(rule));
  rule.attr.size = sizeof(rule);
  rule.attr.port = 1;
  if (!strcmp(options.mode, "sniff")) {
    rule.attr.type = IBV_EXP_FLOW_ATTR_SNIFFER;
  } else {
    rule.attr.type = IBV_EXP_FLOW_ATTR_NORMAL;
    rule.attr.num_of_specs = 3;
    rule.eth.type = IBV_EXP_FLOW_SPEC_ETH;
    rule.eth.size = sizeof(rule.eth);
    memcpy(rule.eth.val.dst_mac, server_mac, 6);
    memset(rule.eth.mask.dst_mac, 0xff, 6);
    rule.ip.type = IBV_EXP_FLOW_SPEC_IPV4;
    rule.ip.size = sizeof(rule.ip);
    rule.ip.val.dst_ip = htonl(0x0a000001);
    rule.ip.mask.dst_ip = 0xffffffff;
    rule.udp.type = !strcmp(options.mode, "tso") ? IBV_EXP_FLOW_SPEC_TCP : IBV_EXP_FLOW_SPEC_UDP;
    rule.udp.size = sizeof(rule.udp);
    rule.udp.val.dst_port = htons(WANTED);
    rule.udp.mask.dst_port = 0xffff;
  }
  flow = ibv_exp_create_flow(qp, &rule.attr);
  if (!flow) die("ibv_exp_create_flow");
  return flow;
}

static void post_receive(unsigned slot) {
  struct ibv_sge piece = {(uintptr_t)(memory + slot * SLOT), SLOT, mr->lkey};
  struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &piece, .num_sge = 1}, *bad;

  check(ibv_post_recv(qp, &wr, &bad), "ibv_post_recv");
}

static struct ibv_exp_wc completion(void) {
  struct ibv_exp_wc wc;
  int n;

  do {
    n = ibv_exp_poll_cq(cq, 1, &wc, sizeof(wc));
    check(n < 0 ? n : 0, "ibv_exp_poll_cq");
  } while (!n);
  if (wc.status != IBV_WC_SUCCESS) wrong(ibv_wc_status_str(wc.status), (int)wc.wr_id);
  return wc;
}

static void send_request(struct ibv_exp_send_wr *wr, struct ibv_sge *piece) {
  struct ibv_exp_send_wr *bad;

  wr->sg_list = piece;
  wr->num_sge = 1;
  wr->exp_send_flags = IBV_EXP_SEND_SIGNALED | IBV_EXP_SEND_IP_CSUM;
  check(ibv_exp_post_send(qp, wr, &bad), "ibv_exp_post_send");
  completion();
}

static int payload_of(int number) { return 18 + number * 37 % 1400; }

static void send_frame(int number, int port) {
  struct ibv_exp_send_wr wr = {.exp_opcode = IBV_EXP_WR_SEND};
  int length = payload_of(number), at = headers(memory, IPPROTO_UDP, port, length), i;
  struct ibv_sge piece = {(uintptr_t)memory, (uint32_t)(at + length), mr->lkey};

  for (i = 0; i < length; ++i) memory[at + i] = content(number, i);
  send_request(&wr, &piece);
}

static void send_stream(int number) {
  unsigned char header[ETH + IP + TCP];
  struct ibv_exp_send_wr wr = {.exp_opcode = IBV_EXP_WR_TSO};
  struct ibv_sge piece = {(uintptr_t)memory, STREAM, mr->lkey};
  int i;

  for (i = 0; i < STREAM; ++i) memory[i] = content(number, i);
  headers(header, IPPROTO_TCP, WANTED, 0);
  wr.tso.hdr = header;
  wr.tso.hdr_sz = sizeof(header);
  wr.tso.mss = MSS;
  send_request(&wr, &piece);
}

static void client(int fd) {
  int tso = !strcmp(options.mode, "tso"), batch = tso ? 1 : 50, number;

  for (number = 0; number < options.count; ++number) {
    if (number % batch == 0) hear(fd);
    if (tso) {
      send_stream(number);
      continue;
    }
    if (!strcmp(options.mode, "flow")) send_frame(number, OTHER);
    send_frame(number, WANTED);
  }
}

/* The file format of tcpdump: a header, and one in front of each frame. */
static void write_frame(FILE *file, const unsigned char *frame, uint32_t length, int number) {
  uint32_t record[4] = {(uint32_t)number, 0, length, length};

  if (fwrite(record, sizeof(record), 1, file) != 1 || fwrite(frame, length, 1, file) != 1)
    die("writing the file");
}

static void receive_frame(int number, FILE *file) {
  struct ibv_exp_wc wc = completion();
  const unsigned char *f = memory + wc.wr_id * SLOT;
  int at = ETH + IP + UDP, length = payload_of(number), i;

  if (wc.byte_len != (uint32_t)(at + length)) wrong("frame of another length", number);
  if (wc.qp != qp) wrong("completion without its QP", number);
  if (!(wc.exp_wc_flags & IBV_EXP_WC_RX_IP_CSUM_OK) ||
      !(wc.exp_wc_flags & IBV_EXP_WC_RX_TCP_UDP_CSUM_OK))
    wrong("checksums are bad", number);
  if (get16(f + ETH + IP + 2) != WANTED) wrong("frame to another port", number);
  for (i = 0; i < length; ++i)
    if (f[at + i] != content(number, i)) wrong("frame differs", number);
  if (file) write_frame(file, f, wc.byte_len, number);
  post_receive((unsigned)wc.wr_id);
}

static void receive_stream(int number) {
  static unsigned char whole[STREAM];
  int missing = STREAM, i;

  memset(whole, 0, sizeof(whole));
  while (missing > 0) {
    struct ibv_exp_wc wc = completion();
    const unsigned char *f = memory + wc.wr_id * SLOT, *tcp = f + ETH + IP;
    unsigned sequence = get16(tcp + 4) << 16 | get16(tcp + 6);
    int length = (int)wc.byte_len - ETH - IP - TCP;

    if (!(wc.exp_wc_flags & IBV_EXP_WC_RX_TCP_UDP_CSUM_OK)) wrong("checksums are bad", number);
    if (length <= 0 || length > MSS || sequence + (unsigned)length > STREAM)
      wrong("not a segment of the stream", number);
    memcpy(whole + sequence, tcp + TCP, (size_t)length);
    missing -= length;
    post_receive((unsigned)wc.wr_id);
  }
  for (i = 0; i < STREAM; ++i)
    if (whole[i] != content(number, i)) wrong("stream differs", number);
}

static void server(int fd) {
  static const uint32_t magic[6] = {0xa1b2c3d4, 2 | 4 << 16, 0, 0, 65535, 1};
  int tso = !strcmp(options.mode, "tso"), batch = tso ? 1 : 50, number;
  FILE *file = options.file ? fopen(options.file, "wb") : NULL;

  if (options.file && (!file || fwrite(magic, sizeof(magic), 1, file) != 1)) die(options.file);
  for (number = 0; number < options.count; ++number) {
    if (number % batch == 0) signal_peer(fd);
    if (tso) receive_stream(number);
    else receive_frame(number, file);
  }
  if (file && fclose(file)) die(options.file);
}

int main(int argc, char **argv) {
  struct ibv_exp_flow *flow = NULL;
  int fd, option;
  unsigned i;

  while ((option = getopt(argc, argv, "p:n:m:w:")) != -1) {
    switch (option) {
      case 'p': options.port = optarg; break;
      case 'n': options.count = atoi(optarg); break;
      case 'm': options.mode = optarg; break;
      case 'w': options.file = optarg; break;
      default: exit(2);
    }
  }
  if (optind < argc) options.host = argv[optind];

  open_device();
  create();
  if (!options.host) {
    flow = steer();
    for (i = 0; i < DEPTH; ++i) post_receive(i);
  }
  fd = meet(options.host, options.port);
  if (options.host) client(fd);
  else server(fd);
  /* Neither leaves before the other has finished. */
  signal_peer(fd);
  hear(fd);
  close(fd);

  if (flow) check(ibv_exp_destroy_flow(flow), "ibv_exp_destroy_flow");
  check(ibv_destroy_qp(qp), "ibv_destroy_qp");
  check(ibv_dereg_mr(mr), "ibv_dereg_mr");
  check(ibv_destroy_cq(cq), "ibv_destroy_cq");
  check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
  check(ibv_close_device(context), "ibv_close_device");
  free(memory);
  printf("%d %s, all bytes verified\n", options.count,
         strcmp(options.mode, "tso") ? "frames" : "streams");
  return 0;
}
