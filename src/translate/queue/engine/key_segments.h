// Segments of an entry that changes a memory key: what changes, and the new context of the key.
// Filling and invalidating indirect keys and binding windows are such entries. The builders of
// mlx5dv leave the start address out, so that their keys begin at 0.
#pragma once

#include "translate/queue/engine/segments.h"

namespace ibvexp::engine {

// No name in mlx5dv.h.
inline constexpr std::uint64_t mask_local_read = 1ull << 17;

// The rights of a window. A filled key gets the one to read, too.
inline constexpr std::uint64_t mask_rights = MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE |
                                             MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ |
                                             MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE |
                                             MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC;
inline constexpr std::uint64_t mask_filled =
    MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE | MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN |
    MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR | mask_local_read | mask_rights;

// Any queue pair, as context_head() has it.
inline constexpr std::uint32_t any_owner = 0xffffff00;

// What changes, behind the control segment in its block. flags: MLX5_WQE_UMR_CTRL_FLAG_*; units: of
// 16 bytes, that the key consists of.
[[gnu::always_inline]] inline void put_change(std::uint8_t *at, std::uint64_t flags,
                                              std::uint32_t units, std::uint64_t mask) {
  static_assert(offsetof(mlx5_wqe_umr_ctrl_seg, klm_octowords) == 4 &&
                offsetof(mlx5_wqe_umr_ctrl_seg, mkey_mask) == 8);
  store(at, be(flags << 56 | std::uint64_t{units} << 16));
  store(at + 8, be(mask));
  std::memset(at + 16, 0, sizeof(mlx5_wqe_umr_ctrl_seg) - 16);
}

// The first eight bytes of a context. owner: the queue pair's number, shifted left by 8, or any;
// of the key only the lowest byte is in the context.
constexpr std::uint64_t context_head(std::uint8_t first_byte, std::uint8_t rights,
                                     std::uint32_t owner, std::uint32_t key) {
  static_assert(offsetof(mlx5_wqe_mkey_context_seg, free) == 0 &&
                offsetof(mlx5_wqe_mkey_context_seg, access_flags) == 2 &&
                offsetof(mlx5_wqe_mkey_context_seg, qpn_mkey) == 4);
  return be(std::uint64_t{first_byte} << 56 | std::uint64_t{rights} << 40 | owner | (key & 0xff));
}

[[gnu::always_inline]] inline void put_context(std::uint8_t *at, std::uint64_t head,
                                               std::uint64_t start, std::uint64_t length) {
  static_assert(offsetof(mlx5_wqe_mkey_context_seg, start_addr) == 16 &&
                offsetof(mlx5_wqe_mkey_context_seg, len) == 24);
  store(at, head);
  store(at + 8, std::uint64_t{0});
  store(at + 16, be(start));
  store(at + 24, be(length));
  std::memset(at + 32, 0, sizeof(mlx5_wqe_mkey_context_seg) - 32);
}

}  // namespace ibvexp::engine
