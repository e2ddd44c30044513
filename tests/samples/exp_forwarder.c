/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A forwarder of raw Ethernet frames by the QP burst and CQ families. One
 * process sends frames and checks what comes back; the other one changes the
 * destination and sends each frame on without copying it.
 *
 *   exp_forwarder [-p PORT] [-n FRAMES] [HOST]
 *
 * Without HOST it forwards.
 */
#include "raw_packet.h"

#define OUT_MAC 0x61
#define BACK_MAC 0x62
#define UDP_PORT 4712
#define DEPTH 128
#define SLOT 2048

static unsigned long frames = 20000;

static struct {
  struct ibv_cq *send_cq, *recv_cq;
  struct ibv_qp *qp;
  struct ibv_exp_qp_burst_family_v1 *burst;
  struct ibv_exp_cq_family *sent, *received;
  struct ibv_flow *flow;
  uint8_t *memory; /* DEPTH slots to receive, then DEPTH to send */
  struct ibv_mr *mr;
} t;

static struct ibv_sge slot(unsigned long index, uint32_t bytes) {
  struct ibv_sge sge = {(uintptr_t)(t.memory + index * SLOT), bytes, t.mr->lkey};

  return sge;
}

static void start(uint8_t mac) {
  struct ibv_sge list[DEPTH];
  uint32_t i;

  t.send_cq = create_cq(2 * DEPTH);
  t.recv_cq = create_cq(2 * DEPTH);
  t.qp = create_raw_qp(t.send_cq, t.recv_cq, DEPTH);
  t.burst = query_family(IBV_EXP_INTF_QP_BURST, t.qp, 1);
  t.sent = query_family(IBV_EXP_INTF_CQ, t.send_cq, 0);
  t.received = query_family(IBV_EXP_INTF_CQ, t.recv_cq, 0);
  t.memory = aligned_alloc(4096, 2 * DEPTH * SLOT);
  t.mr = register_memory(t.memory, 2 * DEPTH * SLOT);
  for (i = 0; i < DEPTH; ++i) list[i] = slot(i, SLOT);
  check(t.burst->recv_burst(t.qp, list, DEPTH), "recv_burst");
  start_qp(t.qp);
  t.flow = steer_udp(t.qp, mac, UDP_PORT);
}

static void stop(void) {
  check(ibv_destroy_flow(t.flow), "ibv_destroy_flow");
  check(ibv_destroy_qp(t.qp), "ibv_destroy_qp");
  check(ibv_destroy_cq(t.send_cq), "ibv_destroy_cq");
  check(ibv_destroy_cq(t.recv_cq), "ibv_destroy_cq");
  check(ibv_dereg_mr(t.mr), "ibv_dereg_mr");
  free(t.memory);
}

/* One frame, or 0 bytes. */
static uint32_t take(uint32_t *flags) {
  uint32_t copied;
  int32_t length = t.received->poll_length_flags(t.recv_cq, NULL, &copied, flags);

  if (length < 0) {
    fprintf(stderr, "poll_length_flags failed\n");
    exit(1);
  }
  if (!length) sched_yield();
  return (uint32_t)length;
}

static void forward(int peer) {
  unsigned long n = 0, finished = 0;

  signal_peer(peer);
  while (n < frames || finished < n) {
    uint32_t flags, length = n < frames ? take(&flags) : 0;
    int done;

    if (length) {
      struct ibv_sge sge = slot(n % DEPTH, length);

      t.memory[n % DEPTH * SLOT + 5] = BACK_MAC;
      check(t.burst->send_pending(t.qp, sge.addr, sge.length, sge.lkey, IBV_EXP_QP_BURST_SIGNALED),
            "send_pending");
      ++n;
      if (n % 8 != 0 && n != frames) continue;
    }
    check(t.burst->send_flush(t.qp), "send_flush");
    done = t.sent->poll_cnt(t.send_cq, DEPTH);
    if (done < 0) die("poll_cnt");
    /* What has left may be received into again. */
    for (; done > 0; --done, ++finished) {
      struct ibv_sge sge = slot(finished % DEPTH, SLOT);

      check(t.burst->recv_burst(t.qp, &sge, 1), "recv_burst");
    }
  }
  hear(peer);
  printf("%lu frames forwarded\n", n);
}

static void generate(int peer) {
  uint8_t expected[SLOT];
  unsigned long sent = 0, back = 0, finished = 0, total = 0;

  hear(peer);
  while (back < frames) {
    uint32_t flags, length;
    int done;

    /* As many as the other side has room for. */
    while (sent < frames && sent - back < DEPTH / 2 && sent - finished < DEPTH / 2) {
      unsigned long at = DEPTH + sent % DEPTH;
      uint32_t bytes = make_frame(sent, t.memory + at * SLOT, OUT_MAC, UDP_PORT);
      struct ibv_sge sge = slot(at, bytes);

      check(t.burst->send_burst(t.qp, &sge, 1, IBV_EXP_QP_BURST_SIGNALED), "send_burst");
      ++sent;
    }
    done = t.sent->poll_cnt(t.send_cq, DEPTH);
    if (done < 0) die("poll_cnt");
    finished += (unsigned long)done;
    length = take(&flags);
    if (length) {
      uint32_t bytes = make_frame(back, expected, BACK_MAC, UDP_PORT);
      struct ibv_sge again = slot(back % DEPTH, SLOT);

      if (length != bytes || memcmp(t.memory + back % DEPTH * SLOT, expected, bytes)) {
        fprintf(stderr, "frame %lu came back changed\n", back);
        exit(1);
      }
      check(t.burst->recv_burst(t.qp, &again, 1), "recv_burst");
      total += bytes;
      ++back;
    }
  }
  signal_peer(peer);
  printf("%lu frames, %lu bytes there and back: all bytes verified\n", back, total);
}

int main(int argc, char **argv) {
  const char *port = "18518", *host;
  int option, peer;

  while ((option = getopt(argc, argv, "p:n:")) != -1) {
    if (option == 'p') port = optarg;
    else if (option == 'n') frames = strtoul(optarg, NULL, 0);
    else return 2;
  }
  host = optind < argc ? argv[optind] : NULL;
  open_device();
  start(host ? BACK_MAC : OUT_MAC);
  peer = meet(host, port);
  if (host) generate(peer);
  else forward(peer);
  close(peer);
  stop();
  check(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
  check(ibv_close_device(context), "ibv_close_device");
  return 0;
}
