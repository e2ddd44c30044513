// Segments of queue entries, as the device reads them (mlx5dv.h). No calls.
#pragma once

#include <infiniband/mlx5dv.h>

#include "translate/queue/engine/bytes.h"
#include "translate/queue/engine/send_queue.h"

namespace ibvexp::engine {

// Length 0 would mean 2 GB to the device, and the highest bit inline data.
constexpr bool is_length(std::uint32_t length) { return length - 1 < 0x7fffffffu; }

// The key of an entry that ends a scatter list.
inline constexpr std::uint32_t no_key = 0x100;

[[gnu::always_inline]] inline void write_data(void *at, std::uint64_t address, std::uint32_t length,
                                              std::uint32_t lkey) {
  store(at, be(std::uint64_t{length} << 32 | lkey));
  store(static_cast<std::uint8_t *>(at) + 8, be(address));
}

// Length and key as they lie in a piece, and its length.
[[gnu::always_inline]] inline std::uint64_t size_and_key(const ibv_sge &piece) {
  static_assert(offsetof(ibv_sge, length) == 8 && offsetof(ibv_sge, lkey) == 12);
  return load<std::uint64_t>(&piece.length);
}
[[gnu::always_inline]] inline void write_piece(void *at, std::uint64_t address,
                                               std::uint64_t size_and_key) {
  const std::uint64_t swapped = be(size_and_key);
  store(at, swapped << 32 | swapped >> 32);
  store(static_cast<std::uint8_t *>(at) + 8, be(address));
}

// The same of a whole piece, in one instruction that not every x86-64 processor has: SSSE3.
#if defined(__x86_64__)
inline bool can_shuffle() { return __builtin_cpu_supports("ssse3") != 0; }
[[gnu::always_inline]] inline void write_shuffled(void *at, const ibv_sge &piece) {
  using Bytes [[gnu::vector_size(16)]] = signed char;
  static_assert(sizeof(ibv_sge) == sizeof(Bytes) && offsetof(ibv_sge, addr) == 0 &&
                offsetof(ibv_sge, length) == 8 && offsetof(ibv_sge, lkey) == 12);
  constexpr Bytes order = {11, 10, 9, 8, 15, 14, 13, 12, 7, 6, 5, 4, 3, 2, 1, 0};
  auto bytes = load<Bytes>(&piece);
  asm("pshufb %1, %0" : "+x"(bytes) : "x"(order));
  store(at, bytes);
}
#else
inline bool can_shuffle() { return false; }
[[gnu::always_inline]] inline void write_shuffled(void *at, const ibv_sge &piece) {
  write_piece(at, piece.addr, size_and_key(piece));
}
#endif
template <bool shuffles>
[[gnu::always_inline]] inline void write_piece(void *at, const ibv_sge &piece) {
  if constexpr (shuffles) write_shuffled(at, piece);
  else write_piece(at, piece.addr, size_and_key(piece));
}

// Ends the scatter list of a receive entry that has room for more.
[[gnu::always_inline]] inline void write_end(void *at) {
  store(at, be(std::uint64_t{no_key}));
  store(static_cast<std::uint8_t *>(at) + 8, std::uint64_t{0});
}

[[gnu::always_inline]] inline void write_remote(void *at, std::uint64_t address,
                                                std::uint32_t rkey) {
  store(at, be(address));
  store(static_cast<std::uint8_t *>(at) + 8, std::uint64_t{be(rkey)});
}

[[gnu::always_inline]] inline void write_atomic(void *at, std::uint64_t swap_or_add,
                                                std::uint64_t compare) {
  store(at, be(swap_or_add));
  store(static_cast<std::uint8_t *>(at) + 8, be(compare));
}

// What a doorbell repeats: the first eight bytes. number is the queue pair's,
// shifted left by 8.
[[gnu::always_inline]] inline constexpr std::uint64_t control_head(std::uint32_t index,
                                                                   std::uint32_t opcode,
                                                                   std::uint32_t number,
                                                                   std::uint32_t segments,
                                                                   std::uint32_t modifier = 0) {
  const std::uint32_t operation = modifier << 24 | (index & 0xffff) << 8 | opcode;
  return be(std::uint64_t{operation} << 32 | number | segments);
}

// imm is in network order already.
[[gnu::always_inline]] inline void write_control(void *at, std::uint64_t head, std::uint32_t flags,
                                                 std::uint32_t imm) {
  store(at, head);
  store(static_cast<std::uint8_t *>(at) + 8, std::uint64_t{imm} << 32 | flags << 24);
}

// Send flags FENCE, SIGNALED and SOLICITED, the same in both layouts, as the
// control segment has them.
constexpr std::uint8_t control_flags(unsigned flags) {
  return static_cast<std::uint8_t>(
      ((flags & IBV_SEND_FENCE) != 0 ? MLX5_WQE_CTRL_FENCE : 0) |
      ((flags & IBV_SEND_SIGNALED) != 0 ? MLX5_WQE_CTRL_CQ_UPDATE : 0) |
      ((flags & IBV_SEND_SOLICITED) != 0 ? MLX5_WQE_CTRL_SOLICITED : 0));
}
static_assert(IBV_SEND_FENCE == 1 && IBV_SEND_SIGNALED == 2 && IBV_SEND_SOLICITED == 4 &&
              IBV_SEND_INLINE == 8);
static_assert(IBV_EXP_SEND_FENCE == 1 && IBV_EXP_SEND_SIGNALED == 2 &&
              IBV_EXP_SEND_SOLICITED == 4 && IBV_EXP_SEND_INLINE == 8);

// The address vector of a handle: behind its public part, as in the legacy
// provider's.
inline const mlx5_wqe_av *vector_of(const ibv_ah *ah) {
  return reinterpret_cast<const mlx5_wqe_av *>(ah + 1);
}
static_assert(sizeof(ibv_ah) == 24 && sizeof(mlx5_wqe_av) == 48);

[[gnu::always_inline]] inline void write_address(void *at, const ibv_ah *ah, std::uint64_t key,
                                                 std::uint32_t number) {
  std::memcpy(at, vector_of(ah), sizeof(mlx5_wqe_av));
  store(at, key);
  store(static_cast<std::uint8_t *>(at) + 8, be(number | MLX5_EXTENDED_UD_AV));
}

// Ethernet headers have to be in the entry itself. This much is enough for every
// inline mode that a device may be in.
inline constexpr std::uint32_t eth_inline_bytes = 18;

// The segment of a frame whose first 18 bytes are at header.
[[gnu::always_inline]] inline void write_ethernet(void *at, std::uint8_t checksums,
                                                  const void *header) {
  auto *to = static_cast<std::uint8_t *>(at);
  const auto *from = static_cast<const std::uint8_t *>(header);
  constexpr std::uint64_t size = be(static_cast<std::uint16_t>(eth_inline_bytes));
  store(to, std::uint64_t{checksums} << 32);
  store(to + 8, size << 32 | std::uint64_t{load<std::uint16_t>(from)} << 48);
  std::memcpy(to + 16, from + 2, 16);
}

}  // namespace ibvexp::engine
