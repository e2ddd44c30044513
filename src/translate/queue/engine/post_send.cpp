#include "translate/queue/engine/post_send.h"

#include <cerrno>
#include <type_traits>

#include "base/real.h"
#include "translate/queue/engine/bind_window.h"
#include "translate/queue/engine/key_change.h"
#include "translate/queue/engine/request.h"
#include "translate/queue/engine/segments.h"
#include "translate/state/context_state.h"

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

// The entry of a request while it is written: first the preamble, all that is in front of the data.
struct Entry {
  std::uint8_t *start;     // the control segment
  std::uint8_t *at;        // the next segment
  std::uint64_t form = 0;  // shape() of what is written
  std::uint32_t skip = 0;  // bytes of the first piece that are in the preamble
};

// What the entry needs once its preamble is written.
struct Preamble {
  enum Needs : std::uint8_t { list, pointers, nothing, other, refusal } needs;
  int error = 0;  // of a refusal
};

// The first 18 bytes of a frame, and which checksums the device fills in.
template <class Wr>
[[gnu::always_inline]] inline Preamble put_frame_preamble(const SendQueue &queue, const Wr &wr,
                                                          std::uint32_t opcode, Entry &entry) {
  constexpr Wr *any = nullptr;
  const ibv_sge *const piece = wr.sg_list;
  if (opcode != IBV_WR_SEND || wr.num_sge == 0 || piece->length < eth_inline_bytes) [[unlikely]]
    return {Preamble::other};
  const bool checksums = (flags_of(wr) & checksum_flag(any)) != 0;
  if (checksums && !queue.checksums) [[unlikely]]
    return {Preamble::refusal, EINVAL};
  write_ethernet(entry.at, checksums ? MLX5_ETH_WQE_L3_CSUM | MLX5_ETH_WQE_L4_CSUM : 0,
                 reinterpret_cast<const void *>(piece->addr));
  entry.at += 2 * segment_bytes;
  store(entry.start + 12, std::uint32_t{0});
  entry.form = shape(MLX5_OPCODE_SEND, head_segments<Transport::raw_packet>);
  return {Preamble::list};
}

// Where a request goes whose QP does not know it: the address of a datagram or a DC target, the
// number of an SRQ.
template <Transport transport, class Wr>
[[gnu::always_inline]] inline Preamble put_destination(const SendQueue &queue, const Wr &wr,
                                                       std::uint32_t opcode, Entry &entry) {
  if constexpr (transport == Transport::ud) {
    if (!is_ordinary(transport, opcode)) [[unlikely]]
      return {Preamble::other};
    if (wr.wr.ud.ah == nullptr) [[unlikely]]
      return {Preamble::refusal, EINVAL};
    write_address(entry.at, wr.wr.ud.ah, be(wr.wr.ud.remote_qkey), wr.wr.ud.remote_qpn);
    entry.at = wrapped(queue, entry.at + sizeof(mlx5_wqe_av));
  } else if constexpr (transport == Transport::xrc) {
    store(entry.at, std::uint64_t{be(wr.qp_type.xrc.remote_srqn)});
    store(entry.at + 8, std::uint64_t{0});
    entry.at += segment_bytes;
  } else if constexpr (transport == Transport::dc && std::is_same_v<Wr, ibv_exp_send_wr>) {
    if (!is_ordinary(transport, opcode)) [[unlikely]]
      return {Preamble::other};
    if (wr.dc.ah == nullptr) [[unlikely]]
      return {Preamble::refusal, EINVAL};
    write_address(entry.at, wr.dc.ah, be(wr.dc.dct_access_key), wr.dc.dct_number);
    entry.at = wrapped(queue, entry.at + sizeof(mlx5_wqe_av));
  } else if constexpr (transport == Transport::dc) {
    return {Preamble::refusal, EINVAL};  // a base request has no place for it
  }
  return {Preamble::list};
}

// An atomic with its pieces: the answer has eight bytes, whatever their lengths say.
template <Transport transport, class Wr>
[[gnu::always_inline]] inline Preamble put_atomic(const SendQueue &queue, const Wr &wr,
                                                  std::uint32_t opcode, Entry &entry) {
  if (!queue.atomics) [[unlikely]]
    return {Preamble::refusal, EOPNOTSUPP};
  store(entry.start + 12, std::uint32_t{0});
  write_remote(entry.at, wr.wr.atomic.remote_addr, wr.wr.atomic.rkey);
  std::uint8_t *at = entry.at + segment_bytes;
  std::uint32_t device_opcode = MLX5_OPCODE_ATOMIC_FA;
  if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
    device_opcode = MLX5_OPCODE_ATOMIC_CS;
    write_atomic(at, wr.wr.atomic.swap, wr.wr.atomic.compare_add);
  } else {
    write_atomic(at, wr.wr.atomic.compare_add, 0);
  }
  at += segment_bytes;
  // On RC and UC a list of one piece ends in front of the next block.
  if constexpr (transport != Transport::rc && transport != Transport::uc) at = wrapped(queue, at);
  entry.form = shape(device_opcode, head_segments<transport> + 2);
  const ibv_sge *const piece = wr.sg_list;
  for (int i = 0; i < wr.num_sge; ++i) {
    if (piece[i].length == 0) [[unlikely]]
      continue;
    write_data(at, piece[i].addr, 8, piece[i].lkey);
    at = wrapped(queue, at + segment_bytes);
    ++entry.form;
  }
  return {Preamble::nothing};
}

// Everything in front of the data. `other` is for put_other().
template <Transport transport, class Wr>
[[gnu::always_inline]] inline Preamble put_preamble(const SendQueue &queue, const Wr &wr,
                                                    std::uint32_t opcode, Entry &entry) {
  constexpr std::uint32_t header = head_segments<transport>;
  constexpr bool datagrams = transport == Transport::ud;
  if constexpr (transport == Transport::raw_packet)
    return put_frame_preamble(queue, wr, opcode, entry);
  const Preamble destination = put_destination<transport>(queue, wr, opcode, entry);
  if (destination.needs != Preamble::list) [[unlikely]]
    return destination;

  // The last word of the control segment; the target of an RDMA operation.
  const auto immediate = [&](std::uint32_t word) { store(entry.start + 12, word); };
  const auto remote = [&] {
    write_remote(entry.at, wr.wr.rdma.remote_addr, wr.wr.rdma.rkey);
    entry.at += segment_bytes;
  };
  switch (opcode) {
    case IBV_WR_SEND:
      immediate(0);
      entry.form = shape(MLX5_OPCODE_SEND, header);
      return {Preamble::list};
    case IBV_WR_SEND_WITH_IMM:
      immediate(immediate_of(wr));
      entry.form = shape(MLX5_OPCODE_SEND_IMM, header);
      return {Preamble::list};
    case IBV_WR_RDMA_WRITE:
      if constexpr (datagrams) return {Preamble::other};
      immediate(0);
      remote();
      entry.form = shape(MLX5_OPCODE_RDMA_WRITE, header + 1);
      return {Preamble::list};
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      if constexpr (datagrams) return {Preamble::other};
      immediate(immediate_of(wr));
      remote();
      entry.form = shape(MLX5_OPCODE_RDMA_WRITE_IMM, header + 1);
      return {Preamble::list};
    case IBV_WR_SEND_WITH_INV:
      if constexpr (datagrams) return {Preamble::other};
      immediate(be(immediate_of(wr)));
      entry.form = shape(MLX5_OPCODE_SEND_INVAL, header);
      return {Preamble::list};
    case IBV_WR_RDMA_READ:
      if constexpr (!is_ordinary(transport, IBV_WR_RDMA_READ)) return {Preamble::other};
      immediate(0);
      remote();
      entry.form = shape(MLX5_OPCODE_RDMA_READ, header + 1);
      return {Preamble::pointers};  // inline data mean nothing to what fetches data
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      if constexpr (!is_ordinary(transport, IBV_WR_ATOMIC_FETCH_AND_ADD)) return {Preamble::other};
      return put_atomic<transport>(queue, wr, opcode, entry);
    default: return {Preamble::other};
  }
}

template <Transport transport, class Wr>
[[gnu::noinline, gnu::cold]] Preamble put_preamble_again(const SendQueue &queue, const Wr &wr,
                                                         std::uint32_t opcode, Entry &entry) {
  return put_preamble<transport>(queue, wr, opcode, entry);
}

// The data of a request, or where they are. 0 or an errno value.
template <Transport transport, class Wr>
[[gnu::always_inline]] inline int put_data(const SendQueue &queue, const Wr &wr, bool copied,
                                           Entry &entry) {
  // Bytes of the first piece that the preamble has.
  constexpr std::uint32_t skip = transport == Transport::raw_packet ? eth_inline_bytes : 0;
  if (copied) {
    const std::uint32_t more = put_inline<skip>(queue, entry.at, wr.sg_list, wr.num_sge);
    if (more == too_long) [[unlikely]]
      return ENOMEM;  // as the legacy provider had it
    entry.form += more;
    return 0;
  }
  if (wr.num_sge != 1) {
    entry.form = put_pieces(queue, entry.at, wr.sg_list, wr.num_sge, skip, entry.form);
    return entry.form == 0 ? EINVAL : 0;
  }
  const std::uint64_t sizes = size_and_key(*wr.sg_list) - skip;
  const auto length = static_cast<std::uint32_t>(sizes);
  if (static_cast<std::int32_t>(length) > 0) [[likely]] {
    write_piece(entry.at, wr.sg_list->addr + skip, sizes);
    ++entry.form;
    return 0;
  }
  return length != 0 ? EINVAL : 0;
}

// The gather list of a request is one that an entry of this queue holds.
template <class Wr>
[[gnu::always_inline]] inline bool has_fitting_list(const SendQueue &queue, const Wr &wr) {
  return static_cast<std::uint32_t>(wr.num_sge) <= queue.max_pieces &&
         (wr.sg_list != nullptr || wr.num_sge == 0);
}

template <Transport transport, class Wr>
int post_chain(SendQueue &queue, Wr *wr, Wr **bad) {
  constexpr Wr *any = nullptr;
  constexpr bool frames = transport == Transport::raw_packet;
  constexpr std::uint64_t plain = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED |
                                  IBV_SEND_INLINE | (frames ? checksum_flag(any) : 0);

  const Guard guard(queue.lock);
  const std::uint32_t first = queue.count;
  std::uint32_t count = first;
  std::uint32_t posted = *queue.posted;
  std::uint32_t limit = queue.limit();
  std::uint64_t head = 0;
  int error = 0;

  for (; wr != nullptr; wr = wr->next) {
    const std::uint32_t opcode = opcode_of(*wr);
    std::uint8_t *const start = queue.begin + (std::size_t{posted & queue.mask} << log_block);
    if (count == limit) [[unlikely]] {
      // A poller may have made some room since.
      limit = queue.limit();
      if (count == limit) {
        error = ENOMEM;
        break;
      }
    }
    bool usual = (flags_of(*wr) & ~plain) == 0;
    if (!has_fitting_list(queue, *wr)) [[unlikely]] {
      if (!has_list(opcode)) {
        usual = false;  // has its data elsewhere, and anything in these places
      } else if (wr->num_sge > 0 || frames) {
        error = wr->num_sge > 0 && wr->sg_list != nullptr ? ENOMEM : EINVAL;
        break;
      }
      // Less than none are none, as in libmlx5 and in the legacy provider.
    }
    Entry entry{start, start + segment_bytes};
    Preamble preamble{Preamble::other};
    if (usual) [[likely]]
      preamble = put_preamble<transport>(queue, *wr, opcode, entry);

    if (preamble.needs == Preamble::other) [[unlikely]] {
      *queue.posted = posted;
      queue.count = count;
      Written<Wr> done;
      if (opcode == IBV_EXP_WR_BIND_MW) done = put_bindings(queue, wr, limit);
      if constexpr (std::is_same_v<Wr, ibv_exp_send_wr>)
        if (opcode == IBV_EXP_WR_UMR_FILL) done = put_key_changes(queue, wr, limit);
      if (done.last != nullptr) {
        wr = done.last;
        head = done.head;
        posted = *queue.posted;
        count = queue.count;
        continue;
      }
      const OtherResult result = put_other(queue, *wr);
      error = result.error;
      if (error != 0) break;
      if (!result.ordinary) {
        head = load<std::uint64_t>(start);
        posted = *queue.posted;
        ++count;
        continue;
      }
      // Ordinary but for flags that mean nothing, or by its number of MLNX_OFED 3.x.
      Entry again{start,
                  start + segment_bytes};  // of its own, so that the other stays in registers
      preamble = put_preamble_again<transport>(queue, *wr, result.opcode, again);
      entry.at = again.at;
      entry.form = again.form;
    }
    if (preamble.needs == Preamble::refusal) [[unlikely]] {
      error = preamble.error;
      break;
    }
    if (preamble.needs != Preamble::nothing) {
      const bool copied =
          preamble.needs == Preamble::list && (flags_of(*wr) & IBV_SEND_INLINE) != 0;
      error = put_data<transport>(queue, *wr, copied, entry);
      if (error != 0) [[unlikely]]
        break;
    }

    std::uint32_t control = queue.control[flags_of(*wr) & 7];
    if (queue.fence != 0) [[unlikely]] {
      if ((flags_of(*wr) & IBV_SEND_FENCE) == 0) control |= queue.fence;
      queue.fence = 0;
    }
    head = be(std::uint64_t{posted & 0xffff} << 40 | queue.number | entry.form);
    store(start, head);
    store(start + 8, control << 24);
    queue.sent[posted & queue.mask] = {wr->wr_id, count};
    posted += blocks_of(segments_in(entry.form));
    ++count;
  }

  if (count != first) [[likely]] {
    queue.count = count;
    *queue.posted = posted;
    queue.doorbell.ring(posted, head);
  }
  if (error != 0 && bad != nullptr) [[unlikely]]
    *bad = wr;
  return error;
}

// A queue pair that is not in RTS yet. libmlx5 calls its queue full; before release 40 it takes the
// requests, and the device executes in RTS what was posted since INIT.
template <class Wr>
int refuse(SendQueue &queue, Wr *wr, Wr **bad) {
  if (wr == nullptr) return 0;
  int error = EINVAL;
  if constexpr (std::is_same_v<Wr, ibv_send_wr>) {
    ibv_context *const context = queue.qp != nullptr ? queue.qp->context : nullptr;
    const ContextState *state = context != nullptr ? find_state(context) : nullptr;
    if (state != nullptr && !state->is_legacy) {
      if (!checks_state())
        return when_ready[static_cast<std::size_t>(queue.transport)].post(queue, wr, bad);
      error = ENOMEM;
    }
  }
  if (bad != nullptr) *bad = wr;
  return error;
}

template <Transport transport>
constexpr Posts posts{post_chain<transport, ibv_send_wr>, post_chain<transport, ibv_exp_send_wr>};

}  // namespace

constexpr Posts when_ready[] = {posts<Transport::rc>,  posts<Transport::uc>,
                                posts<Transport::ud>,  posts<Transport::raw_packet>,
                                posts<Transport::xrc>, posts<Transport::dc>};
constexpr Posts when_not{refuse<ibv_send_wr>, refuse<ibv_exp_send_wr>};

template <std::uint32_t skip>
std::uint32_t put_inline(const SendQueue &queue, std::uint8_t *at, const ibv_sge *list, int count) {
  std::uint8_t *const start = at;
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
  std::uint64_t total = 0;
  std::uint32_t skipped = skip;
  for (; count > 0; --count, ++list, skipped = 0) {
    const auto *from = reinterpret_cast<const std::uint8_t *>(list->addr + skipped);
    std::size_t bytes = list->length - skipped;
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
template std::uint32_t put_inline<0>(const SendQueue &, std::uint8_t *, const ibv_sge *, int);
template std::uint32_t put_inline<eth_inline_bytes>(const SendQueue &, std::uint8_t *,
                                                    const ibv_sge *, int);

}  // namespace ibvexp::engine
