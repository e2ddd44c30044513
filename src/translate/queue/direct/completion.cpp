#include "translate/queue/direct/completion.h"

#include "base/log.h"

#include <algorithm>

namespace ibvexp::direct {

namespace {

// Where the data of a request goes: the pointers behind the other segments.
bool scatter_to_request(const SendQueue &queue, Cqe cqe) {
  const std::uint8_t *at = queue.ring.block(cqe.counter());
  unsigned segments = (at[7] & max_segments) - 2;  // control and remote address
  const std::uint8_t *from = at + 2 * segment_bytes;
  const std::uint8_t opcode = cqe.send_opcode();
  std::uint32_t bytes = cqe.byte_count();
  if (opcode == MLX5_OPCODE_ATOMIC_CS || opcode == MLX5_OPCODE_ATOMIC_FA) {
    from += segment_bytes;
    --segments;
    bytes = 8;
  }
  std::uint8_t list[max_segments * segment_bytes];
  for (unsigned i = 0; i < segments; ++i, from += segment_bytes) {
    if (from >= queue.ring.end) from -= queue.ring.end - queue.ring.begin;
    std::memcpy(list + i * segment_bytes, from, segment_bytes);
  }
  return scatter_inline(list, segments, cqe.inline_data(), bytes);
}

void fill_send(Endpoint &endpoint, Cqe cqe, ibv_wc &wc) {
  SendQueue &queue = endpoint.send;
  const std::uint8_t *entry = queue.ring.block(cqe.counter());
  wc.wr_id = queue.ids[static_cast<std::size_t>(entry - queue.ring.begin) / block_bytes];
  const std::uint8_t opcode = cqe.send_opcode();
  wc.opcode = send_completion(opcode);
  if (wc.opcode == IBV_WC_RDMA_READ) wc.byte_len = cqe.byte_count();
  if (wc.opcode == IBV_WC_COMP_SWAP || wc.opcode == IBV_WC_FETCH_ADD) wc.byte_len = 8;
  if (opcode == MLX5_OPCODE_RDMA_WRITE_IMM || opcode == MLX5_OPCODE_SEND_IMM)
    wc.wc_flags |= IBV_WC_WITH_IMM;
  if (cqe.has_inline() && !scatter_to_request(queue, cqe)) wc.status = IBV_WC_LOC_LEN_ERR;
  complete_send(queue, cqe);
}

void fill_receive(Endpoint &endpoint, Cqe cqe, std::uint8_t opcode, ibv_wc &wc) {
  ReceiveQueue &queue = endpoint.receive;
  wc.wr_id = queue.id(queue.tail);
  wc.byte_len = cqe.byte_count();
  wc.opcode = opcode == MLX5_CQE_RESP_WR_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
  if (opcode == MLX5_CQE_RESP_WR_IMM || opcode == MLX5_CQE_RESP_SEND_IMM) {
    wc.wc_flags |= IBV_WC_WITH_IMM;
    wc.imm_data = cqe.immediate();
  }
  if (opcode == MLX5_CQE_RESP_SEND_INV) {
    wc.wc_flags |= IBV_WC_WITH_INV;
    wc.invalidated_rkey = be(cqe.immediate());
  }
  if (endpoint.raw_packet) wc.wc_flags |= checksum_flag(cqe);
  const std::uint32_t source = cqe.flags_and_source();
  wc.slid = cqe.slid();
  wc.sl = source >> 24 & 0xf;
  wc.src_qp = source & 0xffffff;
  wc.dlid_path_bits = cqe.path_bits();
  if ((source >> 28 & 3) != 0) wc.wc_flags |= IBV_WC_GRH;
  wc.pkey_index = static_cast<std::uint16_t>(be(cqe.immediate()));
  if (cqe.has_inline() &&
      !scatter_inline(queue.scatter(queue.tail), queue.pieces(), cqe.inline_data(), wc.byte_len))
    wc.status = IBV_WC_LOC_LEN_ERR;
  complete_receive(queue, cqe);
}

void fill_error(Endpoint &endpoint, Cqe cqe, bool receive, ibv_wc &wc) {
  wc.status = status_of(cqe.syndrome());
  wc.vendor_err = cqe.vendor_syndrome();
  if (receive) {
    ReceiveQueue &queue = endpoint.receive;
    wc.wr_id = queue.id(queue.tail);
    wc.opcode = IBV_WC_RECV;
    set_relaxed(queue.tail, static_cast<std::uint16_t>(queue.tail + 1));
  } else {
    SendQueue &queue = endpoint.send;
    const std::uint8_t *entry = queue.ring.block(cqe.counter());
    wc.wr_id = queue.ids[static_cast<std::size_t>(entry - queue.ring.begin) / block_bytes];
    complete_send(queue, cqe);
  }
}

[[gnu::cold]] void complain_of_stranger(const CompletionQueue &cq, Cqe cqe) {
  log(LogLevel::error,
      "CQ %#x is driven by an interface family, but a queue (user index %u) completes on it that "
      "was not created through this library",
      cq.number, cqe.user_index());
}

}  // namespace

int take(CompletionQueue &cq, ibv_wc &wc, Taken *taken) {
  Cqe cqe(nullptr);
  std::uint8_t op_own = 0;
  if (!cq.next(cqe, op_own)) return 0;
  const std::uint8_t opcode = opcode_of(op_own);
  const bool receive = is_receive(opcode) || opcode == MLX5_CQE_RESP_ERR;
  const bool error = opcode == MLX5_CQE_REQ_ERR || opcode == MLX5_CQE_RESP_ERR;
  Endpoint *endpoint = cq.endpoint(cqe);
  if (endpoint == nullptr || !(receive ? endpoint->owns_receive : endpoint->owns_send) ||
      !(receive || error || opcode == MLX5_CQE_REQ)) {
    complain_of_stranger(cq, cqe);
    ++cq.consumer;
    errno = EIO;
    return -1;
  }
  const bool striding = receive && !error && endpoint->receive.strides != 0;
  if (striding && taken == nullptr) {
    errno = ENOTSUP;
    return -1;
  }

  wc = {};
  wc.qp_num = endpoint->qp != nullptr ? endpoint->qp->qp_num : endpoint->wq->wq_num;
  if (taken != nullptr) {
    taken->endpoint = endpoint;
    taken->timestamp = error ? 0 : cqe.timestamp();
    taken->packet = {};
    if (striding) {
      const Strides s = strides_of(cqe, endpoint->receive.shift);
      taken->packet = {true, ends_entry(endpoint->receive, s), s};
    }
  }
  if (error) fill_error(*endpoint, cqe, receive, wc);
  else if (receive) fill_receive(*endpoint, cqe, opcode, wc);
  else fill_send(*endpoint, cqe, wc);
  ++cq.consumer;
  return 1;
}

bool scatter_inline(const std::uint8_t *segments, unsigned count, const std::uint8_t *data,
                    std::uint32_t bytes) {
  for (unsigned i = 0; i < count && bytes != 0; ++i, segments += segment_bytes) {
    const auto length = load_be<std::uint32_t>(segments);
    if (load_be<std::uint32_t>(segments + 4) == no_key && length == 0) break;
    const std::uint32_t part = std::min(length & 0x7fffffffu, bytes);
    std::memcpy(reinterpret_cast<void *>(load_be<std::uint64_t>(segments + 8)), data, part);
    data += part;
    bytes -= part;
  }
  return bytes == 0;
}

int poll(CompletionQueue &cq, int count, ibv_wc *wc) {
  const Guard guard(cq.lock);
  const std::uint32_t before = cq.consumer;
  int done = 0;
  for (; done < count; ++done) {
    const int got = take(cq, wc[done], nullptr);
    if (got == 1) continue;
    // What was taken is reported first.
    if (got < 0 && done == 0) done = got;
    break;
  }
  if (cq.consumer != before) cq.release();
  return done;
}

void drop_completions(CompletionQueue &cq, std::uint32_t user_index) {
  const Guard guard(cq.lock);
  if (cq.last != nullptr && cq.last->user_index == user_index) cq.last = nullptr;
  const std::uint32_t first = cq.consumer;
  Cqe cqe(nullptr);
  std::uint8_t op_own = 0;
  // Compressed ones are unpacked on the way.
  for (; cq.next(cqe, op_own); ++cq.consumer) {
    if (cqe.user_index() != user_index) continue;
    __atomic_store_n(cqe.bytes() + 63,
                     static_cast<std::uint8_t>(opcode_dropped << 4 | (op_own & 1)),
                     __ATOMIC_RELEASE);
  }
  cq.consumer = first;
}

void request_notification(CompletionQueue &cq, bool solicited_only) {
  const Guard guard(cq.lock);
  const std::uint32_t command = solicited_only ? MLX5_CQ_DB_REQ_NOT_SOL : MLX5_CQ_DB_REQ_NOT;
  const std::uint32_t word = (cq.arm_count & 3) << 28 | command | (cq.consumer & 0xffffff);
  ring_record(cq.record + 1, word);
  engine::before_doorbell();
  __atomic_store_n(reinterpret_cast<std::uint64_t *>(cq.page + 0x20),
                   be(std::uint64_t{word} << 32 | cq.number), __ATOMIC_RELAXED);
  engine::after_doorbell();
}

}  // namespace ibvexp::direct
