#include "translate/queue/engine/post_send.h"

#include <cerrno>

#include "translate/queue/engine/key_change.h"
#include "translate/queue/engine/request.h"
#include "translate/queue/engine/segments.h"

namespace ibvexp::engine {

namespace {

inline std::uint8_t *wrapped(const SendQueue &queue, std::uint8_t *at) {
  return at == queue.end ? queue.begin : at;
}

// Opcode and segments of an entry, as the first eight bytes of its control segment
// have them, in host order.
constexpr std::uint64_t shape(std::uint32_t opcode, std::uint32_t segments) {
  return std::uint64_t{opcode} << 32 | segments;
}
constexpr std::uint32_t segments_in(std::uint64_t shape) {
  return static_cast<std::uint32_t>(shape) & max_segments;
}

// The address segment and what is in front of it.
template <Transport transport>
inline constexpr std::uint32_t head_segments = transport == Transport::raw_packet ? 3
                                               : transport == Transport::xrc      ? 2
                                               : transport == Transport::ud       ? 4
                                               : transport == Transport::dc       ? 4
                                                                                  : 1;

// Adds the pieces of a gather list to the entry. 0 for one that is too long.
[[gnu::always_inline]] inline std::uint64_t put_pieces(const SendQueue &queue, std::uint8_t *at,
                                                       const ibv_sge *piece, int count,
                                                       std::uint32_t skip, std::uint64_t so_far) {
  for (; count > 0; --count, ++piece) {
    const std::uint64_t sizes = size_and_key(*piece) - skip;
    const auto length = static_cast<std::uint32_t>(sizes);
    if (!is_length(length)) [[unlikely]] {
      if (length != 0) return 0;
    } else {
      write_piece(at, piece->addr + skip, sizes);
      at = wrapped(queue, at + segment_bytes);
      ++so_far;
    }
    skip = 0;
  }
  return so_far;
}

template <Transport transport, class Wr>
int post_chain(SendQueue &queue, Wr *wr, Wr **bad) {
  constexpr Wr *any = nullptr;
  constexpr std::uint64_t plain = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED |
                                  IBV_SEND_INLINE |
                                  (transport == Transport::raw_packet ? checksum_flag(any) : 0);
  constexpr std::uint32_t header = head_segments<transport>;
  constexpr bool frames = transport == Transport::raw_packet;
  // A list of one piece ends in front of the next block.
  constexpr bool may_wrap = transport != Transport::rc && transport != Transport::uc;

  const Guard guard(queue.lock);
  const std::uint32_t first = queue.count;
  std::uint32_t count = first;
  std::uint32_t posted = *queue.posted;
  std::uint32_t limit = queue.limit();
  std::uint64_t head = 0;
  std::uint8_t *entry = nullptr;
  int error = 0;

  for (; wr != nullptr; wr = wr->next) {
    std::uint32_t opcode = opcode_of(*wr);
    const std::uint64_t flags = flags_of(*wr);
    const std::uint32_t slot = posted & queue.mask;
    entry = queue.begin + (std::size_t{slot} << log_block);
    if (count == limit) [[unlikely]] {
      // A poller may have made some room since.
      limit = queue.limit();
      if (count == limit) {
        error = ENOMEM;
        break;
      }
    }
    if (static_cast<std::uint32_t>(wr->num_sge) > queue.max_pieces ||
        (wr->sg_list == nullptr && wr->num_sge != 0)) [[unlikely]] {
      // Others have their data elsewhere, and anything in these places.
      if (!has_list(opcode)) goto other;
      if (wr->num_sge > 0 || frames) {
        error = wr->num_sge > 0 && wr->sg_list != nullptr ? ENOMEM : EINVAL;
        break;
      }
      // Less than none are none, as in libmlx5 and in the legacy provider.
    }
    if ((flags & ~plain) != 0) [[unlikely]] {
    other:
      *queue.posted = posted;
      queue.count = count;
      if constexpr (std::is_same_v<Wr, ibv_exp_send_wr>) {
        if (opcode == IBV_EXP_WR_UMR_FILL) {
          if (const KeyChanges done = put_key_changes(queue, wr, limit); done.last != nullptr) {
            wr = done.last;
            head = done.head;
            posted = *queue.posted;
            count = queue.count;
            continue;
          }
        }
      }
      const OtherResult result = put_other(queue, *wr);
      error = result.error;
      if (error != 0) break;
      if (!result.ordinary) {
        head = load<std::uint64_t>(entry);
        posted = *queue.posted;
        ++count;
        continue;
      }
      opcode = result.opcode;
    }

    std::uint8_t *at = entry + segment_bytes;
    const ibv_sge *const piece = wr->sg_list;
    std::uint64_t form;
    std::uint32_t skip = 0;

    if constexpr (frames) {
      if (opcode != IBV_WR_SEND || wr->num_sge == 0 || piece->length < eth_inline_bytes)
          [[unlikely]]
        goto other;
      const bool checksums = (flags & checksum_flag(any)) != 0;
      if (checksums && !queue.checksums) [[unlikely]] {
        error = EINVAL;
        break;
      }
      write_ethernet(at, checksums ? MLX5_ETH_WQE_L3_CSUM | MLX5_ETH_WQE_L4_CSUM : 0,
                     reinterpret_cast<const void *>(piece->addr));
      at += 2 * segment_bytes;
      skip = eth_inline_bytes;
      store(entry + 12, std::uint32_t{0});
      form = shape(MLX5_OPCODE_SEND, header);
    } else {
      if constexpr (transport == Transport::ud) {
        if (!is_ordinary(transport, opcode)) [[unlikely]]
          goto other;
        if (wr->wr.ud.ah == nullptr) [[unlikely]] {
          error = EINVAL;
          break;
        }
        write_address(at, wr->wr.ud.ah, be(wr->wr.ud.remote_qkey), wr->wr.ud.remote_qpn);
        at = wrapped(queue, at + sizeof(mlx5_wqe_av));
      } else if constexpr (transport == Transport::xrc) {
        store(at, std::uint64_t{be(wr->qp_type.xrc.remote_srqn)});
        store(at + 8, std::uint64_t{0});
        at += segment_bytes;
      } else if constexpr (transport == Transport::dc) {
        if constexpr (std::is_same_v<Wr, ibv_exp_send_wr>) {
          if (!is_ordinary(transport, opcode)) [[unlikely]]
            goto other;
          if (wr->dc.ah == nullptr) [[unlikely]] {
            error = EINVAL;
            break;
          }
          write_address(at, wr->dc.ah, be(wr->dc.dct_access_key), wr->dc.dct_number);
        } else {
          error = EINVAL;  // has no place for the destination
          break;
        }
        at = wrapped(queue, at + sizeof(mlx5_wqe_av));
      }
      switch (opcode) {
        case IBV_WR_SEND:
          store(entry + 12, std::uint32_t{0});
          form = shape(MLX5_OPCODE_SEND, header);
          break;
        case IBV_WR_SEND_WITH_IMM:
          store(entry + 12, immediate_of(*wr));
          form = shape(MLX5_OPCODE_SEND_IMM, header);
          break;
        case IBV_WR_RDMA_WRITE:
          if constexpr (transport == Transport::ud) goto other;
          store(entry + 12, std::uint32_t{0});
          write_remote(at, wr->wr.rdma.remote_addr, wr->wr.rdma.rkey);
          at += segment_bytes;
          form = shape(MLX5_OPCODE_RDMA_WRITE, header + 1);
          break;
        case IBV_WR_RDMA_WRITE_WITH_IMM:
          if constexpr (transport == Transport::ud) goto other;
          store(entry + 12, immediate_of(*wr));
          write_remote(at, wr->wr.rdma.remote_addr, wr->wr.rdma.rkey);
          at += segment_bytes;
          form = shape(MLX5_OPCODE_RDMA_WRITE_IMM, header + 1);
          break;
        case IBV_WR_SEND_WITH_INV:
          if constexpr (transport == Transport::ud) goto other;
          store(entry + 12, be(immediate_of(*wr)));
          form = shape(MLX5_OPCODE_SEND_INVAL, header);
          break;
        case IBV_WR_RDMA_READ:
          if constexpr (!is_ordinary(transport, IBV_WR_RDMA_READ)) goto other;
          store(entry + 12, std::uint32_t{0});
          write_remote(at, wr->wr.rdma.remote_addr, wr->wr.rdma.rkey);
          at += segment_bytes;
          form = shape(MLX5_OPCODE_RDMA_READ, header + 1);
          // Inline data mean nothing to what fetches data.
          goto pointers;
        case IBV_WR_ATOMIC_CMP_AND_SWP:
        case IBV_WR_ATOMIC_FETCH_AND_ADD:
          if constexpr (!is_ordinary(transport, IBV_WR_ATOMIC_FETCH_AND_ADD)) goto other;
          if (!queue.atomics) [[unlikely]] {
            error = EOPNOTSUPP;
            break;
          }
          store(entry + 12, std::uint32_t{0});
          write_remote(at, wr->wr.atomic.remote_addr, wr->wr.atomic.rkey);
          at += segment_bytes;
          if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
            form = shape(MLX5_OPCODE_ATOMIC_CS, header + 2);
            write_atomic(at, wr->wr.atomic.swap, wr->wr.atomic.compare_add);
          } else {
            form = shape(MLX5_OPCODE_ATOMIC_FA, header + 2);
            write_atomic(at, wr->wr.atomic.compare_add, 0);
          }
          at += segment_bytes;
          if constexpr (may_wrap) at = wrapped(queue, at);
          // The answer has eight bytes, whatever the pieces say.
          for (int i = 0; i < wr->num_sge; ++i) {
            if (piece[i].length == 0) [[unlikely]]
              continue;
            write_data(at, piece[i].addr, 8, piece[i].lkey);
            at = wrapped(queue, at + segment_bytes);
            ++form;
          }
          goto written;
        default: goto other;
      }
      if (error != 0) [[unlikely]]
        break;
    }

    if ((flags & IBV_SEND_INLINE) != 0) {
      const std::uint32_t more = put_inline(queue, at, piece, wr->num_sge, skip);
      if (more == too_long) [[unlikely]] {
        error = ENOMEM;  // as the legacy provider had it
        break;
      }
      form += more;
    } else {
      [[maybe_unused]] pointers:;
      if (wr->num_sge == 1) [[likely]] {
        const std::uint64_t sizes = size_and_key(*piece) - skip;
        const auto length = static_cast<std::uint32_t>(sizes);
        if (static_cast<std::int32_t>(length) > 0) [[likely]] {
          write_piece(at, piece->addr + skip, sizes);
          ++form;
        } else if (length != 0) {
          error = EINVAL;
          break;
        }
      } else {
        form = put_pieces(queue, at, piece, wr->num_sge, skip, form);
        if (form == 0) [[unlikely]] {
          error = EINVAL;
          break;
        }
      }
    }

    [[maybe_unused]] written : std::uint32_t control = queue.control[flags & 7];
    if (queue.fence != 0) [[unlikely]] {
      if ((flags & IBV_SEND_FENCE) == 0) control |= queue.fence;
      queue.fence = 0;
    }
    head = be(std::uint64_t{posted & 0xffff} << 40 | queue.number | form);
    store(entry, head);
    store(entry + 8, control << 24);
    queue.sent[slot] = {wr->wr_id, count};
    posted += blocks_of(segments_in(form));
    ++count;
  }

  if (count != first) [[likely]] {
    queue.count = count;
    *queue.posted = posted;
    if (queue.doorbell.half != 0 && count == first + 1) [[unlikely]]
      ring_one(queue, posted, head);
    else queue.doorbell.ring(posted, head);
  }
  if (error != 0 && bad != nullptr) [[unlikely]]
    *bad = wr;
  return error;
}

// A queue pair that is not in RTS yet.
template <class Wr>
int refuse(SendQueue &, Wr *wr, Wr **bad) {
  if (wr == nullptr) return 0;
  if (bad != nullptr) *bad = wr;
  return EINVAL;
}

template <Transport transport>
void select_ready(SendQueue &queue) {
  queue.post = post_chain<transport, ibv_send_wr>;
  queue.post_exp = post_chain<transport, ibv_exp_send_wr>;
}

}  // namespace

void ring_one(SendQueue &queue, std::uint32_t posted, std::uint64_t head) {
  // Byte 7 of the head.
  const auto segments = static_cast<std::uint32_t>(head >> 56) & max_segments;
  const std::uint32_t blocks = blocks_of(segments);
  if (segments < 2 || blocks * block_bytes > queue.doorbell.half)
    return queue.doorbell.ring(posted, head);
  const std::uint8_t *entry =
      queue.begin + (std::size_t{(posted - blocks) & queue.mask} << log_block);
  queue.doorbell.ring_entry(posted, entry, blocks, queue.begin, queue.end);
}

std::uint32_t put_inline(const SendQueue &queue, std::uint8_t *at, const ibv_sge *list, int count,
                         std::uint32_t skip) {
  std::uint8_t *const start = at;
  std::uint64_t total = 0;
  at += sizeof(std::uint32_t);
  if (count == 1) [[likely]] {
    const std::uint32_t bytes = list->length - skip;
    if (bytes <= queue.max_inline && bytes <= static_cast<std::size_t>(queue.end - at) &&
        bytes != 0) [[likely]] {
      store(start, be(bytes | MLX5_INLINE_SEG));
      std::memcpy(at, reinterpret_cast<const void *>(list->addr + skip), bytes);
      return segments_of(bytes + sizeof(std::uint32_t));
    }
  }
  for (; count > 0; --count, ++list) {
    const auto *from = reinterpret_cast<const std::uint8_t *>(list->addr + skip);
    std::size_t bytes = list->length - skip;
    skip = 0;
    total += bytes;
    if (total > queue.max_inline) [[unlikely]]
      return too_long;
    if (bytes > static_cast<std::size_t>(queue.end - at)) [[unlikely]] {
      const auto part = static_cast<std::size_t>(queue.end - at);
      std::memcpy(at, from, part);
      from += part;
      bytes -= part;
      at = queue.begin;
    }
    std::memcpy(at, from, bytes);
    at += bytes;
  }
  if (total == 0) return 0;
  store(start, be(static_cast<std::uint32_t>(total) | MLX5_INLINE_SEG));
  return segments_of(total + sizeof(std::uint32_t));
}

void SendQueue::select(bool ready) {
  if (!ready) {
    post = refuse<ibv_send_wr>;
    post_exp = refuse<ibv_exp_send_wr>;
    return;
  }
  switch (transport) {
    case Transport::rc: return select_ready<Transport::rc>(*this);
    case Transport::uc: return select_ready<Transport::uc>(*this);
    case Transport::ud: return select_ready<Transport::ud>(*this);
    case Transport::raw_packet: return select_ready<Transport::raw_packet>(*this);
    case Transport::xrc: return select_ready<Transport::xrc>(*this);
    case Transport::dc: return select_ready<Transport::dc>(*this);
  }
}

}  // namespace ibvexp::engine
