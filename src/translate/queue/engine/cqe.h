// Completion entries, as the device writes them. No calls, no state. Layout:
// mlx5_cqe64 in mlx5dv.h; places that it does not name are given here.
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs_exp.h>

#include <algorithm>
#include <array>

#include "translate/queue/engine/barrier.h"
#include "translate/queue/engine/bytes.h"

namespace ibvexp::engine {

inline constexpr std::size_t cqe_bytes = 64;

// The 64 bytes that matter; of a 128-byte entry the second half.
class Cqe {
 public:
  explicit Cqe(void *at) : at_(static_cast<std::uint8_t *>(at)) {}

  // Owner bit, format and opcode. The device writes it last.
  std::uint8_t op_own() const { return read_owner(at_ + 63); }

  std::uint32_t user_index() const { return load_be<std::uint32_t>(at_ + 32) & 0xffffff; }
  // The same in network order, at its place in the word.
  std::uint32_t tag() const { return load<std::uint32_t>(at_ + 32) & be(0xffffffu); }
  std::uint32_t number() const { return load_be<std::uint32_t>(at_ + 56) & 0xffffff; }
  std::uint8_t send_opcode() const { return at_[56]; }
  std::uint16_t counter() const { return load_be<std::uint16_t>(at_ + 60); }
  std::uint32_t byte_count() const { return load_be<std::uint32_t>(at_ + 44); }
  std::uint64_t timestamp() const { return load_be<std::uint64_t>(at_ + 48); }
  std::uint16_t vlan() const { return load_be<std::uint16_t>(at_ + 30); }
  std::uint32_t immediate() const { return load<std::uint32_t>(at_ + 36); }  // as on the wire

  std::uint16_t stride() const { return load_be<std::uint16_t>(at_ + 20); }  // of a message
  std::uint8_t outcome() const { return at_[41]; }                           // of tag matching

  std::uint16_t slid() const { return load_be<std::uint16_t>(at_ + 22); }
  std::uint8_t path_bits() const { return at_[17] & 0x7f; }
  std::uint32_t flags_and_source() const { return load_be<std::uint32_t>(at_ + 24); }

  std::uint8_t syndrome() const { return at_[55]; }
  std::uint8_t vendor_syndrome() const { return at_[54]; }

  std::uint8_t tunnel() const { return at_[0]; }
  std::uint8_t checks() const { return at_[28]; }
  std::uint8_t headers() const { return at_[29]; }
  // Both: the headers in the upper byte.
  std::uint16_t headers_and_checks() const { return load<std::uint16_t>(at_ + 28); }

  // Data inside the entry: in its front, or of 64 bytes in the half before.
  bool has_inline() const { return is_inline(op_own()); }
  static bool is_inline(std::uint8_t op_own) {
    const unsigned format = op_own >> 2 & 3;
    return format == 1 || format == 2;
  }
  const std::uint8_t *inline_data() const {
    return (op_own() & MLX5_INLINE_SCATTER_64) != 0 ? at_ - cqe_bytes : at_;
  }

  std::uint8_t *bytes() const { return at_; }

 private:
  std::uint8_t *at_;
};

constexpr std::uint8_t opcode_of(std::uint8_t op_own) { return op_own >> 4; }
constexpr bool is_compressed(std::uint8_t op_own) { return (op_own & 0xc) == 0xc; }
// Compressed, or with data inside.
constexpr bool has_format(std::uint8_t op_own) { return (op_own & 0xc) != 0; }
constexpr bool is_receive(std::uint8_t opcode) {
  return opcode >= MLX5_CQE_RESP_WR_IMM && opcode <= MLX5_CQE_RESP_SEND_INV;
}
// Whether the CQE is one of a receive request, which may have failed.
constexpr bool is_of_receive(std::uint8_t opcode) {
  return is_receive(opcode) || opcode == MLX5_CQE_RESP_ERR;
}

// Multi-packet receive queues count in strides, not entries.
struct Strides {
  std::uint16_t first;     // where in the buffer
  std::uint16_t consumed;  // how many
  std::uint16_t bytes;     // of the packet
  bool filler;             // no packet: the rest of the buffer is too small for the next

  // Whether they are the last ones of an entry that has so many.
  bool end(std::uint32_t of_entry) const { return std::uint32_t{first} + consumed >= of_entry; }
};

// The device counts what a shift puts in front as part of the packet.
inline Strides strides_of(Cqe cqe, std::uint32_t shift = 0) {
  const std::uint32_t word = cqe.byte_count();
  const bool filler = word >> 31 != 0;
  return {cqe.counter(), static_cast<std::uint16_t>(word >> 16 & 0x7fff),
          filler ? std::uint16_t{0} : static_cast<std::uint16_t>(word - shift), filler};
}

// Strides of a packet of a message in a shared queue, whose CQEs do not have their number: as
// many as its bytes fill, one at least. written: by a WRITE, which takes one.
inline Strides message_strides_of(Cqe cqe, std::uint32_t log_bytes, bool written) {
  const std::uint32_t word = cqe.byte_count();
  const bool filler = !written && word >> 31 != 0;
  const auto bytes = filler || written ? std::uint16_t{0} : static_cast<std::uint16_t>(word);
  const std::uint32_t count = (bytes + (1u << log_bytes) - 1) >> log_bytes;
  return {cqe.stride(), static_cast<std::uint16_t>(std::max(count, 1u)), bytes, filler};
}
inline bool is_last_packet(Cqe cqe) { return (cqe.byte_count() >> 30 & 1) != 0; }

// How many entries of a receive queue the device is done with once it has written this
// completion of the queue; modulo 2^16. striding: of a multi-packet queue of that many
// strides; 0 for others.
inline std::uint16_t receives_done(Cqe cqe, std::uint32_t striding) {
  const std::uint8_t op_own = cqe.op_own();
  if (striding == 0 || opcode_of(op_own) == MLX5_CQE_RESP_ERR) {
    const std::uint32_t completions = is_compressed(op_own) ? cqe.byte_count() : 1;
    return static_cast<std::uint16_t>(cqe.counter() + completions);
  }
  const std::uint16_t entry = load_be<std::uint16_t>(cqe.bytes() + 2);
  const bool is_last = !is_compressed(op_own) && strides_of(cqe).end(striding);
  return static_cast<std::uint16_t>(entry + is_last);
}

// What a received frame is. L3_OK and L4_OK speak of the inner headers of a
// tunnelled frame, and are set only if the outer ones are good, too.
constexpr std::uint32_t receive_flags(std::uint8_t checks, std::uint8_t headers,
                                      std::uint8_t tunnel) {
  std::uint32_t flags = 0;
  const bool l3 = (checks & MLX5_CQE_L3_OK) != 0;
  const bool l4 = (checks & MLX5_CQE_L4_OK) != 0;
  const unsigned l3_type = headers >> 2 & 3;
  const unsigned l4_type = headers >> 4 & 7;
  if (l3_type == MLX5_CQE_L3_HDR_TYPE_IPV4) flags |= IBV_EXP_CQ_RX_IPV4_PACKET;
  if (l3_type == MLX5_CQE_L3_HDR_TYPE_IPV6) flags |= IBV_EXP_CQ_RX_IPV6_PACKET;
  if (l4_type == 2) flags |= IBV_EXP_CQ_RX_UDP_PACKET;
  if (l4_type == 1 || l4_type == 3 || l4_type == 4) flags |= IBV_EXP_CQ_RX_TCP_PACKET;
  // Without a header the device calls the layer good.
  if (l3 && l3_type != MLX5_CQE_L3_HDR_TYPE_NONE) flags |= IBV_EXP_CQ_RX_IP_CSUM_OK;
  if (l4 && l4_type != 0) flags |= IBV_EXP_CQ_RX_TCP_UDP_CSUM_OK;
  if ((headers & 1) != 0) flags |= IBV_EXP_CQ_RX_CVLAN_STRIPPED_V1;
  if ((tunnel & 1) != 0) {
    flags |= IBV_EXP_CQ_RX_TUNNEL_PACKET;
    const bool outer_ipv6 = (tunnel & 2) != 0;
    flags |= outer_ipv6 ? IBV_EXP_CQ_RX_OUTER_IPV6_PACKET : IBV_EXP_CQ_RX_OUTER_IPV4_PACKET;
    if (l3) flags |= IBV_EXP_CQ_RX_OUTER_IP_CSUM_OK;
    if (l4) flags |= IBV_EXP_CQ_RX_OUTER_TCP_UDP_CSUM_OK;
  }
  return flags;
}

// The same by a table, for frames without a tunnel: what the headers say, were all
// layers good.
inline constexpr auto flags_by_headers = [] {
  std::array<std::uint16_t, 256> table{};
  for (unsigned headers = 0; headers < table.size(); ++headers)
    table[headers] = static_cast<std::uint16_t>(
        receive_flags(MLX5_CQE_L3_OK | MLX5_CQE_L4_OK, static_cast<std::uint8_t>(headers), 0));
  return table;
}();

inline std::uint32_t plain_receive_flags(Cqe cqe) {
  constexpr std::uint32_t good = IBV_EXP_CQ_RX_IP_CSUM_OK | IBV_EXP_CQ_RX_TCP_UDP_CSUM_OK;
  static_assert(MLX5_CQE_L3_OK >> 1 == IBV_EXP_CQ_RX_IP_CSUM_OK &&
                MLX5_CQE_L4_OK >> 1 == IBV_EXP_CQ_RX_TCP_UDP_CSUM_OK);
  return flags_by_headers[cqe.headers()] & (~good | (cqe.checks() >> 1 & good));
}

inline std::uint32_t receive_flags(Cqe cqe) {
  if (cqe.tunnel() != 0) [[unlikely]]
    return receive_flags(cqe.checks(), cqe.headers(), cqe.tunnel());
  return plain_receive_flags(cqe);
}

// The same as ibv_exp_poll_cq() reports it: IBV_EXP_WC_RX_*, which are the first of those flags.
inline constexpr std::uint64_t frame_flags_mask =
    IBV_EXP_WC_RX_OUTER_IPV6_PACKET * 2 - IBV_EXP_WC_RX_IP_CSUM_OK;
constexpr std::uint64_t to_completion_flags(std::uint32_t flags) {
  static_assert(IBV_EXP_CQ_RX_IP_CSUM_OK == 1);
  return flags * IBV_EXP_WC_RX_IP_CSUM_OK & frame_flags_mask;
}
static_assert(
    to_completion_flags(IBV_EXP_CQ_RX_TCP_UDP_CSUM_OK) == IBV_EXP_WC_RX_TCP_UDP_CSUM_OK &&
    to_completion_flags(IBV_EXP_CQ_RX_IPV4_PACKET) == IBV_EXP_WC_RX_IPV4_PACKET &&
    to_completion_flags(IBV_EXP_CQ_RX_IPV6_PACKET) == IBV_EXP_WC_RX_IPV6_PACKET &&
    to_completion_flags(IBV_EXP_CQ_RX_TUNNEL_PACKET) == IBV_EXP_WC_RX_TUNNEL_PACKET &&
    to_completion_flags(IBV_EXP_CQ_RX_OUTER_IP_CSUM_OK) == IBV_EXP_WC_RX_OUTER_IP_CSUM_OK &&
    to_completion_flags(IBV_EXP_CQ_RX_OUTER_TCP_UDP_CSUM_OK) ==
        IBV_EXP_WC_RX_OUTER_TCP_UDP_CSUM_OK &&
    to_completion_flags(IBV_EXP_CQ_RX_OUTER_IPV4_PACKET) == IBV_EXP_WC_RX_OUTER_IPV4_PACKET &&
    to_completion_flags(IBV_EXP_CQ_RX_OUTER_IPV6_PACKET) == IBV_EXP_WC_RX_OUTER_IPV6_PACKET &&
    to_completion_flags(IBV_EXP_CQ_RX_MULTI_PACKET_LAST_V1) == 0);

// Completion flags of a frame by its header bits, as a table: few instructions.
inline constexpr auto completion_flags_by_headers = [] {
  std::array<std::uint64_t, 256> table{};
  for (unsigned headers = 0; headers < table.size(); ++headers)
    table[headers] = to_completion_flags(flags_by_headers[headers]);
  return table;
}();
[[gnu::always_inline]] inline std::uint64_t completion_flags(Cqe cqe) {
  if (cqe.tunnel() != 0) [[unlikely]]
    return to_completion_flags(receive_flags(cqe.checks(), cqe.headers(), cqe.tunnel()));
  constexpr std::uint64_t good = IBV_EXP_WC_RX_IP_CSUM_OK | IBV_EXP_WC_RX_TCP_UDP_CSUM_OK;
  constexpr std::uint64_t to_flags = std::uint64_t{IBV_EXP_WC_RX_IP_CSUM_OK} / MLX5_CQE_L3_OK;
  static_assert(MLX5_CQE_L4_OK * to_flags == IBV_EXP_WC_RX_TCP_UDP_CSUM_OK);
  // What else is in the checks lies where ~good has ones.
  return completion_flags_by_headers[cqe.headers()] & (~good | cqe.checks() * to_flags);
}

// The flag that base verbs report: network and transport checksum good, in an IPv4 packet.
inline unsigned checksum_flag(Cqe cqe) {
  constexpr unsigned version = 3 << 10, good = MLX5_CQE_L3_OK | MLX5_CQE_L4_OK;
  constexpr unsigned wanted = MLX5_CQE_L3_HDR_TYPE_IPV4 << 10 | good;
  return (cqe.headers_and_checks() & (version | good)) == wanted ? IBV_WC_IP_CSUM_OK : 0;
}

constexpr ibv_wc_status status_of(std::uint8_t syndrome) {
  switch (syndrome) {
    case MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR: return IBV_WC_LOC_LEN_ERR;
    case MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR: return IBV_WC_LOC_QP_OP_ERR;
    case MLX5_CQE_SYNDROME_LOCAL_PROT_ERR: return IBV_WC_LOC_PROT_ERR;
    case MLX5_CQE_SYNDROME_WR_FLUSH_ERR: return IBV_WC_WR_FLUSH_ERR;
    case MLX5_CQE_SYNDROME_MW_BIND_ERR: return IBV_WC_MW_BIND_ERR;
    case MLX5_CQE_SYNDROME_BAD_RESP_ERR: return IBV_WC_BAD_RESP_ERR;
    case MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR: return IBV_WC_LOC_ACCESS_ERR;
    case MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR: return IBV_WC_REM_INV_REQ_ERR;
    case MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR: return IBV_WC_REM_ACCESS_ERR;
    case MLX5_CQE_SYNDROME_REMOTE_OP_ERR: return IBV_WC_REM_OP_ERR;
    case MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR: return IBV_WC_RETRY_EXC_ERR;
    case MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR: return IBV_WC_RNR_RETRY_EXC_ERR;
    case MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR: return IBV_WC_REM_ABORT_ERR;
    default: return IBV_WC_GENERAL_ERR;
  }
}

// How many completions a title stands for. No device writes none, or more than the queue
// has; memory that was overwritten may have either, and must not be expanded for ever.
constexpr std::uint32_t session_length(std::uint32_t written, std::uint32_t entries) {
  return std::clamp(written, std::uint32_t{1}, entries);
}

// Unpacks compressed completions in their places. The first entry, the title,
// stands for all: byte_count says how many there are. Eight of what differs
// follow in the next slot, and eight more in every eighth slot behind the title.
// slot(k) gives the place of the k-th entry from the title on, owner(k) its
// owner bit. striding: of a multi-packet queue, whose counter goes by strides. The
// unpacked ones have no timestamp: it is zero. entries: of the queue.
template <class Slot, class Owner>
void decompress(Slot slot, Owner owner, std::uint32_t entries, bool striding) {
  std::uint8_t title[cqe_bytes];
  std::memcpy(title, slot(0), sizeof(title));
  const std::uint32_t count = session_length(Cqe(title).byte_count(), entries);
  std::uint16_t counter = Cqe(title).counter();
  const std::uint8_t op = title[63] & 0xf0;
  store(title + 48, std::uint64_t{0});

  std::uint8_t small[8][8];
  for (std::uint32_t i = 0; i < count; ++i) {
    // Copied before the entry that takes its place is written.
    if (i % 8 == 0) std::memcpy(small, slot(i == 0 ? 1 : i), sizeof(small));
    const std::uint8_t *mini = small[i % 8];
    std::uint8_t *to = slot(i);
    std::memcpy(to, title, cqe_bytes - 1);
    std::memcpy(to + 44, mini + 4, 4);  // bytes; the rest is a hash or a checksum
    store(to + 60, be(counter));
    const std::uint16_t step = striding ? strides_of(Cqe(to)).consumed : std::uint16_t{1};
    counter = static_cast<std::uint16_t>(counter + step);
    __atomic_store_n(to + 63, static_cast<std::uint8_t>(op | owner(i)), __ATOMIC_RELEASE);
  }
}

}  // namespace ibvexp::engine
