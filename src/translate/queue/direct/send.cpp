#include "translate/queue/direct/send.h"

#include "translate/convert/wr_convert.h"

namespace ibvexp::direct {

namespace {

// What an entry takes, or 0 if it cannot be written as one.
unsigned data_segments(const Gather &data, bool is_inline) {
  if (!is_inline) {
    Gather walk = data;
    for (ibv_sge piece; walk.piece(piece);)
      if (!is_length(piece.length)) return max_segments + 1;
    return data.pieces();
  }
  const std::uint64_t bytes = data.remaining();
  return bytes == 0 ? 0 : segments_of(sizeof(std::uint32_t) + bytes);
}

struct Operation {
  std::uint8_t opcode;
  std::uint32_t imm;  // network order
  bool remote;        // has an address at the other side
  bool atomic;
};

bool to_operation(const ibv_send_wr &wr, ibv_qp_type type, Operation &out) {
  const bool connected = type == IBV_QPT_RC || type == IBV_QPT_UC;
  const bool reliable = type == IBV_QPT_RC;
  switch (wr.opcode) {
    case IBV_WR_SEND: out = {MLX5_OPCODE_SEND, 0, false, false}; return true;
    case IBV_WR_SEND_WITH_IMM:
      out = {MLX5_OPCODE_SEND_IMM, wr.imm_data, false, false};
      return connected;
    case IBV_WR_SEND_WITH_INV:
      out = {MLX5_OPCODE_SEND_INVAL, be(wr.invalidate_rkey), false, false};
      return connected;
    case IBV_WR_RDMA_WRITE: out = {MLX5_OPCODE_RDMA_WRITE, 0, true, false}; return connected;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      out = {MLX5_OPCODE_RDMA_WRITE_IMM, wr.imm_data, true, false};
      return connected;
    case IBV_WR_RDMA_READ: out = {MLX5_OPCODE_RDMA_READ, 0, true, false}; return reliable;
    case IBV_WR_ATOMIC_CMP_AND_SWP: out = {MLX5_OPCODE_ATOMIC_CS, 0, true, true}; return reliable;
    case IBV_WR_ATOMIC_FETCH_AND_ADD: out = {MLX5_OPCODE_ATOMIC_FA, 0, true, true}; return reliable;
    default: return false;
  }
}

void write_remote(void *at, std::uint64_t address, std::uint32_t rkey) {
  store(at, be(address));
  store(byte_at(at, 8), std::uint64_t{be(rkey)});
}

void write_atomic(void *at, const ibv_send_wr &wr) {
  const bool swap = wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
  store(at, be(swap ? wr.wr.atomic.swap : wr.wr.atomic.compare_add));
  store(byte_at(at, 8), swap ? be(wr.wr.atomic.compare_add) : 0);
}

std::uint32_t to_burst_flags(unsigned flags) {
  std::uint32_t out = 0;
  if ((flags & IBV_SEND_SIGNALED) != 0) out |= IBV_EXP_QP_BURST_SIGNALED;
  if ((flags & IBV_SEND_SOLICITED) != 0) out |= IBV_EXP_QP_BURST_SOLICITED;
  if ((flags & IBV_SEND_FENCE) != 0) out |= IBV_EXP_QP_BURST_FENCE;
  if ((flags & IBV_SEND_IP_CSUM) != 0) out |= IBV_EXP_QP_BURST_IP_CSUM;
  return out;
}

// Everything but what the hot path does by itself.
int put(Endpoint &endpoint, Gather data, std::uint32_t flags, const std::uint16_t *tci,
        bool is_inline, const Operation &op, const ibv_send_wr *wr) {
  SendQueue &queue = endpoint.send;
  flags |= queue.always;
  if ((flags & queue.refused) != 0) return refuse_burst_flags(flags);
  const std::uint64_t total = data.remaining();
  if (is_inline && total > queue.max_inline) return ENOMEM;  // as the legacy provider had it

  // Counted with the data behind the header, before anything is written.
  unsigned segments = 1;
  Gather payload = data;
  if (endpoint.raw_packet) {
    if (total < 14) return EINVAL;  // no Ethernet header
    std::uint8_t header[eth_inline_bytes];
    payload.take(header, eth_inline_bytes - (tci != nullptr ? vlan_tag_bytes : 0));
    segments += 2;
  }
  if (op.remote) ++segments;
  if (op.atomic) ++segments;
  segments += data_segments(payload, is_inline);
  if (segments > max_segments) return EINVAL;
  if (queue.room() < blocks_of(segments)) return ENOMEM;

  EntryWriter entry(queue.ring, queue.posted);
  std::uint8_t *control = entry.segment();
  if (endpoint.raw_packet) append_ethernet(entry, to_checksums(flags), data, tci);
  if (op.atomic) {
    write_remote(entry.segment(), wr->wr.atomic.remote_addr, wr->wr.atomic.rkey);
    write_atomic(entry.segment(), *wr);
  } else if (op.remote) {
    write_remote(entry.segment(), wr->wr.rdma.remote_addr, wr->wr.rdma.rkey);
  }
  if (is_inline) append_inline(entry, data);
  else append_pointers(entry, data);

  const std::uint64_t head = control_head(queue.posted, op.opcode, queue.number, entry.segments());
  write_control(control, head, to_control(flags), op.imm);
  queue.enter(control, head, blocks_of(entry.segments()), wr != nullptr ? wr->wr_id : 0);
  return 0;
}

}  // namespace

int refuse_burst_flags(std::uint32_t flags) {
  return (flags & ~burst_flags) != 0 ? EINVAL : ENOTSUP;
}

int put_send(Endpoint &endpoint, const ibv_sge *list, std::uint32_t count, std::uint32_t flags,
             const std::uint16_t *tci, bool is_inline) {
  constexpr Operation send{MLX5_OPCODE_SEND, 0, false, false};
  return put(endpoint, Gather(list, count), flags, tci, is_inline, send, nullptr);
}

int put_request(Endpoint &endpoint, const ibv_send_wr &wr) {
  Operation op;
  if (!to_operation(wr, endpoint.qp->qp_type, op)) return EOPNOTSUPP;
  if (const int fault = translate::judge_pieces(wr); fault != 0) return fault;
  const bool is_inline = (wr.send_flags & IBV_SEND_INLINE) != 0;
  const Gather data(wr.sg_list, static_cast<std::uint32_t>(wr.num_sge));
  // Inline data means nothing to what fetches data.
  if (op.atomic) {
    if (data.remaining() != 8) return EINVAL;
    return put(endpoint, data, to_burst_flags(wr.send_flags), nullptr, false, op, &wr);
  }
  return put(endpoint, data, to_burst_flags(wr.send_flags), nullptr,
             is_inline && wr.opcode != IBV_WR_RDMA_READ, op, &wr);
}

}  // namespace ibvexp::direct
