/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the samples of raw Ethernet share (exp_frames, exp_rss, exp_udp_stream,
 * exp_forwarder): a device, raw packet queue pairs, UDP frames whose every byte
 * follows from their number, and a word with the peer. Programs in a single file
 * would have these at their top.
 */
#ifndef RAW_PACKET_H
#define RAW_PACKET_H

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <infiniband/verbs_exp.h>
#include <netdb.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEADERS 42 /* Ethernet, IPv4, UDP */
#define LARGEST 1514

static struct ibv_context *context;
static struct ibv_pd *pd;

static inline void die(const char *what) {
  fprintf(stderr, "%s: %s\n", what, strerror(errno));
  exit(1);
}

static inline void check(int error, const char *what) {
  if (error) {
    errno = error > 0 ? error : -error;
    die(what);
  }
}

static inline void open_device(void) {
  struct ibv_device **list = ibv_get_device_list(NULL);

  if (!list || !list[0]) die("no device");
  context = ibv_open_device(list[0]);
  if (!context) die("ibv_open_device");
  ibv_free_device_list(list);
  pd = ibv_alloc_pd(context);
  if (!pd) die("ibv_alloc_pd");
}

static inline struct ibv_mr *register_memory(void *memory, size_t bytes) {
  struct ibv_exp_reg_mr_in in = {0};
  struct ibv_mr *mr;

  in.pd = pd;
  in.addr = memory;
  in.length = bytes;
  in.exp_access = IBV_EXP_ACCESS_LOCAL_WRITE;
  mr = ibv_exp_reg_mr(&in);
  if (!mr) die("ibv_exp_reg_mr");
  return mr;
}

static inline struct ibv_cq *create_cq(int entries) {
  struct ibv_exp_cq_init_attr attr = {0};
  struct ibv_cq *cq = ibv_exp_create_cq(context, entries, NULL, NULL, 0, &attr);

  if (!cq) die("ibv_exp_create_cq");
  return cq;
}

static inline struct ibv_qp *create_raw_qp(struct ibv_cq *send_cq, struct ibv_cq *recv_cq,
                                           uint32_t depth) {
  struct ibv_exp_qp_init_attr init = {0};
  struct ibv_exp_qp_attr attr = {0};
  struct ibv_qp *qp;

  init.qp_type = IBV_QPT_RAW_PACKET;
  init.send_cq = send_cq;
  init.recv_cq = recv_cq;
  init.cap.max_send_wr = init.cap.max_recv_wr = depth;
  init.cap.max_send_sge = init.cap.max_recv_sge = 1;
  init.comp_mask = IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS;
  init.pd = pd;
  qp = ibv_exp_create_qp(context, &init);
  if (!qp) die("ibv_exp_create_qp");
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  check(ibv_exp_modify_qp(qp, &attr, IBV_EXP_QP_STATE | IBV_EXP_QP_PORT), "to INIT");
  return qp;
}

static inline void start_qp(struct ibv_qp *qp) {
  struct ibv_exp_qp_attr attr = {0};

  attr.qp_state = IBV_QPS_RTR;
  check(ibv_exp_modify_qp(qp, &attr, IBV_EXP_QP_STATE), "to RTR");
  attr.qp_state = IBV_QPS_RTS;
  check(ibv_exp_modify_qp(qp, &attr, IBV_EXP_QP_STATE), "to RTS");
}

static inline void *query_family(enum ibv_exp_intf_family family, void *object, uint32_t version) {
  struct ibv_exp_query_intf_params params = {0};
  enum ibv_exp_query_intf_status status;
  void *functions;

  params.intf_scope = IBV_EXP_INTF_GLOBAL;
  params.intf = family;
  params.intf_version = version;
  params.obj = object;
  functions = ibv_exp_query_intf(context, &params, &status);
  if (!functions) {
    fprintf(stderr, "ibv_exp_query_intf: family %d: status %d\n", family, status);
    exit(1);
  }
  return functions;
}

/* UDP frames to one MAC address and port. */
static inline struct ibv_flow *steer_udp(struct ibv_qp *qp, uint8_t last_of_mac, uint16_t port) {
  struct {
    struct ibv_flow_attr attr;
    struct ibv_flow_spec_eth eth;
    struct ibv_flow_spec_tcp_udp udp;
  } rule = {0};
  const uint8_t mac[6] = {2, 0, 0, 0, 0, last_of_mac};
  struct ibv_flow *flow;

  rule.attr.type = IBV_FLOW_ATTR_NORMAL;
  rule.attr.size = sizeof(rule);
  rule.attr.num_of_specs = 2;
  rule.attr.port = 1;
  rule.eth.type = IBV_FLOW_SPEC_ETH;
  rule.eth.size = sizeof(rule.eth);
  memcpy(rule.eth.val.dst_mac, mac, 6);
  memset(rule.eth.mask.dst_mac, 0xff, 6);
  rule.eth.val.ether_type = htons(0x0800);
  rule.eth.mask.ether_type = 0xffff;
  rule.udp.type = IBV_FLOW_SPEC_UDP;
  rule.udp.size = sizeof(rule.udp);
  rule.udp.val.dst_port = htons(port);
  rule.udp.mask.dst_port = 0xffff;
  flow = ibv_create_flow(qp, &rule.attr);
  if (!flow) die("ibv_create_flow");
  return flow;
}

static inline uint64_t next_random(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

static inline void put16(uint8_t *at, uint32_t value) {
  at[0] = (uint8_t)(value >> 8);
  at[1] = (uint8_t)value;
}

/* Writes frame number n and returns its length: 60 to 1514 bytes. */
static inline uint32_t make_frame(uint64_t n, uint8_t *frame, uint8_t last_of_mac, uint16_t port) {
  static const uint8_t headers[HEADERS] = {2,    0, 0,  0, 0, 0, 2,    0,    0,  0,  0, 99, 8,  0,
                                           0x45, 0, 0,  0, 0, 0, 0x40, 0,    64, 17, 0, 0,  10, 9,
                                           0,    1, 10, 9, 0, 2, 0x30, 0x39, 0,  0,  0, 0,  0,  0};
  uint64_t state = (n + 1) * 0x9e3779b97f4a7c15u, word;
  uint32_t bytes = 60 + (uint32_t)(next_random(&state) % (LARGEST - 60 + 1)), i, sum = 0;

  memcpy(frame, headers, HEADERS);
  frame[5] = last_of_mac;
  put16(frame + 16, bytes - 14);
  for (i = 14; i < 34; i += 2) sum += (uint32_t)frame[i] << 8 | frame[i + 1];
  sum = (sum & 0xffff) + (sum >> 16);
  put16(frame + 24, ~(sum + (sum >> 16)));
  put16(frame + 36, port);
  put16(frame + 38, bytes - 34);
  for (i = HEADERS; i < bytes; i += 8) {
    word = next_random(&state);
    memcpy(frame + i, &word, bytes - i < 8 ? bytes - i : 8);
  }
  return bytes;
}

/* A connection beside the device: Ethernet does not show who is ready. */
static inline int meet(const char *host, const char *port) {
  struct addrinfo hints = {.ai_flags = AI_PASSIVE,
                           .ai_family = AF_INET,
                           .ai_socktype = SOCK_STREAM},
                  *all;
  int fd, listening, one = 1, i;

  if (getaddrinfo(host, port, &hints, &all)) die("address");
  for (i = 0; host && i < 300; ++i) {
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
  if (host || bind(listening, all->ai_addr, all->ai_addrlen) || listen(listening, 1))
    die("connection");
  freeaddrinfo(all);
  fd = accept(listening, NULL, NULL);
  close(listening);
  if (fd < 0) die("accept");
  return fd;
}

static inline void signal_peer(int fd) {
  char byte = 1;

  if (write(fd, &byte, 1) != 1) die("peer");
}

static inline void hear(int fd) {
  char byte;

  errno = ECONNRESET; /* what there is to say of a peer that has left */
  if (read(fd, &byte, 1) != 1) die("peer");
}

#endif
