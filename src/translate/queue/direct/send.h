// Writing send requests into a queue of ours. The doorbell is rung apart.
#pragma once

#include "translate/queue/direct/queue.h"

namespace ibvexp::direct {

// Burst flags as the entry has them; SIGNALED, SOLICITED and FENCE.
constexpr std::uint8_t to_control(std::uint32_t flags) {
  static_assert(IBV_EXP_QP_BURST_SIGNALED << 3 == control_signaled &&
                int{IBV_EXP_QP_BURST_SOLICITED} == control_solicited &&
                IBV_EXP_QP_BURST_FENCE << 3 == control_fence);
  return static_cast<std::uint8_t>((flags & (IBV_EXP_QP_BURST_SIGNALED | IBV_EXP_QP_BURST_FENCE))
                                       << 3 |
                                   (flags & IBV_EXP_QP_BURST_SOLICITED));
}

constexpr std::uint8_t to_checksums(std::uint32_t flags) {
  return (flags & IBV_EXP_QP_BURST_IP_CSUM) != 0 ? MLX5_ETH_WQE_L3_CSUM | MLX5_ETH_WQE_L4_CSUM : 0;
}

inline constexpr std::uint32_t burst_flags = IBV_EXP_QP_BURST_SIGNALED |
                                             IBV_EXP_QP_BURST_SOLICITED | IBV_EXP_QP_BURST_IP_CSUM |
                                             IBV_EXP_QP_BURST_TUNNEL | IBV_EXP_QP_BURST_FENCE;

// A plain send of a gather list, by pointer or inline; tci is null or a VLAN tag
// to put in. Returns 0 or an errno value, and has done nothing then.
int put_send(Endpoint &endpoint, const ibv_sge *list, std::uint32_t count, std::uint32_t flags,
             const std::uint16_t *tci, bool is_inline);

// Any other request that a queue pair of the type knows. Returns 0, or an errno
// value, and has done nothing then.
int put_request(Endpoint &endpoint, const ibv_send_wr &wr);

// Which errno value a flag that is not served gets.
[[gnu::cold]] int refuse_burst_flags(std::uint32_t flags);

// The common case of put_send(): one piece that fits one block.
template <bool raw_packet>
inline int put_piece(Endpoint &endpoint, std::uint64_t address, std::uint32_t length,
                     std::uint32_t lkey, std::uint32_t flags) {
  SendQueue &queue = endpoint.send;
  constexpr std::uint32_t header = raw_packet ? eth_inline_bytes : 0;
  flags |= queue.always;
  if ((flags & queue.refused) != 0) [[unlikely]]
    return refuse_burst_flags(flags);
  if (!is_length(length - header)) [[unlikely]] {
    const ibv_sge piece{address, length, lkey};
    return put_send(endpoint, &piece, 1, flags, nullptr, false);
  }
  if (queue.room() == 0) [[unlikely]]
    return ENOMEM;

  const std::uint16_t index = queue.posted;
  const std::size_t slot = index & (queue.blocks - 1);
  std::uint8_t *const at = queue.ring.begin + slot * block_bytes;
  constexpr unsigned segments = raw_packet ? 4 : 2;
  const std::uint64_t head = control_head(index, MLX5_OPCODE_SEND, queue.number, segments);
  write_control(at, head, to_control(flags), 0);
  if constexpr (raw_packet) {
    write_ethernet(at + segment_bytes, to_checksums(flags),
                   reinterpret_cast<const void *>(address));
    write_data(at + 3 * segment_bytes, address + header, length - header, lkey);
  } else {
    write_data(at + segment_bytes, address, length, lkey);
  }
  queue.doorbell = head;
  queue.ids[slot] = 0;
  queue.posted = static_cast<std::uint16_t>(index + 1);
  return 0;
}

}  // namespace ibvexp::direct
