// A host of the fabric that answers ARP requests for its address and ICMP echo requests, by a
// raw packet queue pair: the other end of a ping from a guest's network interface.
//   echo ADDRESS
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>

enum { slots = 64, slot_bytes = 4096, header_bytes = 14 };
static const uint8_t own_mac[6] = {0x02, 0x45, 0x43, 0x48, 0x4f, 0x01};
static uint8_t buffers[slots][slot_bytes], answer[slot_bytes];
static struct ibv_qp *qp;
static struct ibv_mr *mr, *answer_mr;

static int post(int slot) {
  struct ibv_sge piece = {(uintptr_t)buffers[slot], slot_bytes, mr->lkey};
  struct ibv_recv_wr wr = {.wr_id = (uint64_t)slot, .sg_list = &piece, .num_sge = 1}, *bad;
  return ibv_post_recv(qp, &wr, &bad);
}

static uint16_t checksum(const uint8_t *data, uint32_t bytes) {
  uint32_t sum = 0;
  for (uint32_t i = 0; i < bytes; ++i) sum += i % 2 ? data[i] : (uint32_t)data[i] << 8;
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return (uint16_t)~sum;
}

// Turns what came into its answer. 0: there is none.
static int turn(uint8_t *f, uint32_t bytes, in_addr_t address) {
  uint8_t *body = f + header_bytes;
  if (bytes < 42) return 0;
  if (f[12] == 8 && f[13] == 6) {
    if (body[7] != 1 || memcmp(body + 24, &address, 4) != 0) return 0;
    body[7] = 2;
    memcpy(body + 18, body + 8, 10);  // who asks
    memcpy(body + 8, own_mac, 6);
    memcpy(body + 14, &address, 4);
  } else if (f[12] == 8 && f[13] == 0) {
    const uint32_t header = (body[0] & 15) * 4u, length = (uint32_t)body[2] << 8 | body[3];
    uint8_t *icmp = body + header;
    if (body[9] != IPPROTO_ICMP || memcmp(body + 16, &address, 4) != 0 ||
        length + header_bytes > bytes || length < header + 8 || icmp[0] != 8)
      return 0;
    memcpy(body + 16, body + 12, 4);
    memcpy(body + 12, &address, 4);
    icmp[0] = icmp[2] = icmp[3] = 0;
    const uint16_t sum = checksum(icmp, length - header);
    icmp[2] = (uint8_t)(sum >> 8);
    icmp[3] = (uint8_t)sum;
  } else {
    return 0;
  }
  memcpy(f, f + 6, 6);
  memcpy(f + 6, own_mac, 6);
  return 1;
}

static int send_answer(struct ibv_cq *cq, uint32_t bytes) {
  struct ibv_sge piece = {(uintptr_t)answer, bytes, answer_mr->lkey};
  struct ibv_send_wr wr = {.sg_list = &piece,
                           .num_sge = 1,
                           .opcode = IBV_WR_SEND,
                           .send_flags = IBV_SEND_SIGNALED},
                     *bad;
  struct ibv_wc wc;
  if (ibv_post_send(qp, &wr, &bad)) return -1;
  while (ibv_poll_cq(cq, 1, &wc) == 0) {
  }
  return wc.status == IBV_WC_SUCCESS ? 0 : -1;
}

int main(int argc, char **argv) {
  struct ibv_device **list = ibv_get_device_list(NULL);
  struct ibv_context *context = list && list[0] ? ibv_open_device(list[0]) : NULL;
  if (argc != 2 || !context) return 1;
  const in_addr_t address = inet_addr(argv[1]);
  struct ibv_pd *pd = ibv_alloc_pd(context);
  struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
  struct ibv_cq *received = ibv_create_cq(context, slots, NULL, channel, 0),
                *sent = ibv_create_cq(context, 16, NULL, NULL, 0);
  mr = ibv_reg_mr(pd, buffers, sizeof buffers, IBV_ACCESS_LOCAL_WRITE);
  answer_mr = ibv_reg_mr(pd, answer, sizeof answer, IBV_ACCESS_LOCAL_WRITE);
  struct ibv_qp_init_attr init = {.send_cq = sent,
                                  .recv_cq = received,
                                  .cap = {16, slots, 1, 1, 0},
                                  .qp_type = IBV_QPT_RAW_PACKET};
  if (!received || !sent || !mr || !answer_mr || !(qp = ibv_create_qp(pd, &init))) return 2;
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
  if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT)) return 3;
  attr.qp_state = IBV_QPS_RTR;
  if (ibv_modify_qp(qp, &attr, IBV_QP_STATE)) return 3;
  attr.qp_state = IBV_QPS_RTS;
  if (ibv_modify_qp(qp, &attr, IBV_QP_STATE)) return 3;
  for (int i = 0; i < slots; ++i)
    if (post(i)) return 4;
  struct ibv_flow_attr all = {.type = IBV_FLOW_ATTR_ALL_DEFAULT, .size = sizeof all, .port = 1};
  if (!ibv_create_flow(qp, &all)) return 5;
  puts("ready");
  fflush(stdout);
  // Until it is killed.
  for (;;) {
    struct ibv_cq *which;
    void *cookie;
    struct ibv_wc wc;
    if (ibv_req_notify_cq(received, 0)) return 6;
    while (ibv_poll_cq(received, 1, &wc) > 0) {
      uint8_t *frame = buffers[wc.wr_id];
      if (wc.status != IBV_WC_SUCCESS) return 7;
      if (turn(frame, wc.byte_len, address)) {
        memcpy(answer, frame, wc.byte_len);
        if (send_answer(sent, wc.byte_len)) return 8;
      }
      if (post((int)wc.wr_id)) return 4;
    }
    if (ibv_get_cq_event(channel, &which, &cookie)) return 9;
    ibv_ack_cq_events(which, 1);
  }
}
