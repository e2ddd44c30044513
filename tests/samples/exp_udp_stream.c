/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A stream of UDP frames of random sizes. The generator sends them by the QP
 * burst family; the receiver takes them out of a multi-packet receive queue by
 * the CQ family, compares every byte and accounts for every stride.
 *
 *   exp_udp_stream [-p PORT] [-n FRAMES] [-2] [HOST]
 *
 * Without HOST it receives. -2: packets lie two bytes into their strides, which
 * aligns the IP header.
 */
#include "raw_packet.h"

#define MAC 0x51
#define UDP_PORT 4711
#define WINDOW 2048 /* frames on their way */
#define BURST 128

#define LOG_STRIDE 6
#define LOG_STRIDES 10
#define STRIDE (1u << LOG_STRIDE)
#define STRIDES (1u << LOG_STRIDES)
#define ENTRY (STRIDE * STRIDES)
#define ENTRIES 32

static unsigned long frames = 100000;
static uint32_t shift;

static void generate(int peer) {
  struct ibv_cq *cq = create_cq(1024);
  struct ibv_qp *qp = create_raw_qp(cq, cq, 512);
  struct ibv_exp_qp_burst_family *send = query_family(IBV_EXP_INTF_QP_BURST, qp, 0);
  struct ibv_exp_cq_family *poll = query_family(IBV_EXP_INTF_CQ, cq, 0);
  uint8_t *memory = aligned_alloc(4096, BURST * 2048);
  struct ibv_mr *mr = register_memory(memory, BURST * 2048);
  struct ibv_sge list[BURST];
  unsigned long n = 0, heard = 0;

  start_qp(qp);
  hear(peer);
  while (n < frames) {
    uint32_t i, count = frames - n < BURST ? (uint32_t)(frames - n) : BURST;
    int done = 0, got;

    for (i = 0; i < count; ++i, ++n) {
      list[i].addr = (uintptr_t)(memory + i * 2048);
      list[i].length = make_frame(n, memory + i * 2048, MAC, UDP_PORT);
      list[i].lkey = mr->lkey;
    }
    check(send->send_burst(qp, list, count, IBV_EXP_QP_BURST_SIGNALED), "send_burst");
    while (done < (int)count) {
      got = poll->poll_cnt(cq, count);
      if (got < 0) die("poll_cnt");
      if (!got) sched_yield();
      done += got;
    }
    /* The receiver says when it has taken so many. */
    for (; n >= heard + WINDOW; heard += WINDOW / 2) hear(peer);
  }
  hear(peer);
  printf("%lu frames sent\n", n);
  check(ibv_exp_release_intf(context, send, NULL), "ibv_exp_release_intf");
  check(ibv_exp_release_intf(context, poll, NULL), "ibv_exp_release_intf");
  check(ibv_destroy_qp(qp), "ibv_destroy_qp");
  check(ibv_destroy_cq(cq), "ibv_destroy_cq");
  check(ibv_dereg_mr(mr), "ibv_dereg_mr");
  free(memory);
}

/* The device's account of strides, kept beside it. */
static struct {
  unsigned long entries, strides, fillers, wasted;
  uint32_t used;
} ledger;

static void take_strides(uint32_t bytes, uint32_t offset, int last) {
  uint32_t count = (bytes + shift + STRIDE - 1) / STRIDE;

  if (offset != ledger.used * STRIDE + shift) {
    fprintf(stderr, "packet at %u, expected at %u\n", offset, ledger.used * STRIDE + shift);
    exit(1);
  }
  ledger.used += count;
  ledger.strides += count;
  if (ledger.used > STRIDES || (ledger.used == STRIDES) != (last != 0)) {
    fprintf(stderr, "%u strides used, last %d\n", ledger.used, last);
    exit(1);
  }
  if (last) {
    ++ledger.entries;
    ledger.used = 0;
  }
}

static void take_filler(uint32_t next_bytes) {
  uint32_t left = STRIDES - ledger.used;

  if (left * STRIDE >= next_bytes + shift) {
    fprintf(stderr, "%u strides given up\n", left);
    exit(1);
  }
  ++ledger.fillers;
  ++ledger.entries;
  ledger.wasted += left;
  ledger.used = 0;
}

static void receive(int peer) {
  struct ibv_exp_device_attr device = {.comp_mask = IBV_EXP_DEVICE_ATTR_MP_RQ};
  struct ibv_cq *cq = create_cq(8192);
  struct ibv_exp_cq_family_v1 *poll = query_family(IBV_EXP_INTF_CQ, cq, 1);
  struct ibv_exp_wq_init_attr init = {0};
  struct ibv_exp_wq_attr state = {0};
  struct ibv_exp_rwq_ind_table_init_attr table_init = {0};
  struct ibv_exp_rx_hash_conf hash = {0};
  struct ibv_exp_qp_init_attr qp_init = {0};
  struct ibv_exp_rwq_ind_table *table;
  struct ibv_exp_wq_family *post;
  struct ibv_exp_wq *wq;
  struct ibv_flow *flow;
  struct ibv_qp *qp;
  uint8_t key[40] = {0x6d, 0x5a}, expected[2048];
  uint8_t *memory = aligned_alloc(4096, (size_t)ENTRIES * ENTRY);
  struct ibv_mr *mr = register_memory(memory, (size_t)ENTRIES * ENTRY);
  unsigned long n = 0, total = 0;
  uint32_t i, bytes, offset, flags;

  memset(memory, 0, (size_t)ENTRIES * ENTRY);
  check(ibv_exp_query_device(context, &device), "ibv_exp_query_device");
  if (!(device.comp_mask & IBV_EXP_DEVICE_ATTR_MP_RQ) ||
      !(device.mp_rq_caps.supported_qps & IBV_EXP_MP_RQ_SUP_TYPE_WQ_RQ)) {
    fprintf(stderr, "the device has no multi-packet receive queues\n");
    exit(1);
  }
  init.wq_type = IBV_EXP_WQT_RQ;
  init.max_recv_wr = ENTRIES;
  init.max_recv_sge = 1;
  init.pd = pd;
  init.cq = cq;
  init.comp_mask = IBV_EXP_CREATE_WQ_MP_RQ;
  init.mp_rq.use_shift = shift ? IBV_EXP_MP_RQ_2BYTES_SHIFT : IBV_EXP_MP_RQ_NO_SHIFT;
  init.mp_rq.single_stride_log_num_of_bytes = LOG_STRIDE;
  init.mp_rq.single_wqe_log_num_of_strides = LOG_STRIDES;
  wq = ibv_exp_create_wq(context, &init);
  if (!wq) die("ibv_exp_create_wq");
  post = query_family(IBV_EXP_INTF_WQ, wq, 0);
  state.attr_mask = IBV_EXP_WQ_ATTR_STATE;
  state.wq_state = IBV_EXP_WQS_RDY;
  check(ibv_exp_modify_wq(wq, &state), "ibv_exp_modify_wq");

  table_init.pd = pd;
  table_init.ind_tbl = &wq;
  table = ibv_exp_create_rwq_ind_table(context, &table_init);
  if (!table) die("ibv_exp_create_rwq_ind_table");
  hash.rx_hash_function = IBV_EXP_RX_HASH_FUNC_TOEPLITZ;
  hash.rx_hash_key = key;
  hash.rx_hash_key_len = sizeof(key);
  hash.rx_hash_fields_mask = IBV_EXP_RX_HASH_DST_PORT_UDP;
  hash.rwq_ind_tbl = table;
  qp_init.qp_type = IBV_QPT_RAW_PACKET;
  qp_init.comp_mask =
      IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_RX_HASH | IBV_EXP_QP_INIT_ATTR_PORT;
  qp_init.pd = pd;
  qp_init.port_num = 1;
  qp_init.rx_hash_conf = &hash;
  qp = ibv_exp_create_qp(context, &qp_init);
  if (!qp) die("ibv_exp_create_qp");
  flow = steer_udp(qp, MAC, UDP_PORT);

  for (i = 0; i < ENTRIES; ++i) {
    struct ibv_sge buffer = {(uintptr_t)(memory + (size_t)i * ENTRY), ENTRY, mr->lkey};

    check(post->recv_burst(wq, &buffer, 1), "recv_burst");
  }
  signal_peer(peer);

  bytes = make_frame(0, expected, MAC, UDP_PORT);
  while (n < frames) {
    size_t entry = ledger.entries % ENTRIES;
    uint8_t *buffer = memory + entry * ENTRY;
    int32_t length = poll->poll_length_flags_mp_rq(cq, &offset, &flags);
    int last = (flags & IBV_EXP_CQ_RX_MULTI_PACKET_LAST_V1) != 0;

    if (length < 0) {
      struct ibv_wc wc;

      ibv_poll_cq(cq, 1, &wc);
      fprintf(stderr, "frame %lu: %s\n", n, ibv_wc_status_str(wc.status));
      exit(1);
    }
    if (length) {
      if ((uint32_t)length != bytes || memcmp(buffer + offset, expected, bytes)) {
        fprintf(stderr, "frame %lu: %d bytes at %u differ\n", n, length, offset);
        exit(1);
      }
      if (!(flags & IBV_EXP_CQ_RX_IPV4_PACKET) || !(flags & IBV_EXP_CQ_RX_UDP_PACKET) ||
          !(flags & IBV_EXP_CQ_RX_IP_CSUM_OK)) {
        fprintf(stderr, "frame %lu: flags %#x\n", n, flags);
        exit(1);
      }
      take_strides(bytes, offset, last);
      total += bytes;
      ++n;
      if (n % (WINDOW / 2) == 0) signal_peer(peer);
      bytes = make_frame(n, expected, MAC, UDP_PORT);
    } else if (last) {
      take_filler(bytes);
    } else {
      sched_yield();
      continue;
    }
    if (last) {
      struct ibv_sge again = {(uintptr_t)buffer, ENTRY, mr->lkey};

      check(post->recv_burst(wq, &again, 1), "recv_burst");
    }
  }
  signal_peer(peer);
  printf("%lu frames, %lu bytes: all bytes verified\n", n, total);
  printf("%lu buffers, %lu strides filled, %lu left over in %lu fillers\n", ledger.entries,
         ledger.strides, ledger.wasted, ledger.fillers);
  if (ledger.entries * STRIDES + ledger.used != ledger.strides + ledger.wasted) {
    fprintf(stderr, "strides are missing\n");
    exit(1);
  }

  check(ibv_destroy_flow(flow), "ibv_destroy_flow");
  check(ibv_destroy_qp(qp), "ibv_destroy_qp");
  check(ibv_exp_destroy_rwq_ind_table(table), "ibv_exp_destroy_rwq_ind_table");
  check(ibv_exp_destroy_wq(wq), "ibv_exp_destroy_wq");
  check(ibv_destroy_cq(cq), "ibv_destroy_cq");
  check(ibv_dereg_mr(mr), "ibv_dereg_mr");
  free(memory);
}

int main(int argc, char **argv) {
  const char *port = "18517", *host;
  int option, peer;

  while ((option = getopt(argc, argv, "p:n:2")) != -1) {
    if (option == 'p') port = optarg;
    else if (option == 'n') frames = strtoul(optarg, NULL, 0);
    else if (option == '2') shift = 2;
    else return 2;
  }
  host = optind < argc ? argv[optind] : NULL;
  open_device();
  peer = meet(host, port);
  if (host) generate(peer);
  else receive(peer);
  close(peer);
  check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
  check(ibv_close_device(context), "ibv_close_device");
  return 0;
}
