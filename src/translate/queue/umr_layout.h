// What a key made by UMR consists of, as the device reads it: units of 16 bytes,
// in groups of four. No calls.
//
// A list has one unit per piece. A repeating pattern has one unit per block behind
// a header; per repetition each block contributes its bytes and moves on by its
// stride, so the key is as long as all blocks together, times the repetitions.
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs_exp.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "translate/convert/umr_limits.h"

namespace ibvexp::queue {

using Umr = std::remove_reference_t<decltype(std::declval<ibv_exp_send_wr &>().ext_op.umr)>;

struct UmrLayout {
  std::uint32_t units = 0;
  std::uint64_t length = 0;  // bytes of the new key

  static constexpr std::size_t unit = 16;
  // What the device is given.
  std::uint32_t padded_units() const { return (units + 3) / 4 * 4; }
  std::size_t bytes() const { return padded_units() * unit; }
};

// The largest piece of a list. Its count is 0 in the device's 32 bits.
inline constexpr std::uint64_t largest_piece = translate::largest_key_piece;
// Bytes and strides of blocks have 16 bits in the device.
inline constexpr std::size_t largest_block = 0xffff;
inline constexpr std::uint32_t repeat_mark = 0x400;

// More than a key can have of either.
inline constexpr std::uint32_t most_pieces_of_key = 65535;

namespace detail {

inline bool usable(const ibv_mr *mr, const ibv_context *context) {
  return mr != nullptr && mr->context == context;
}

inline int measure_list(const Umr &umr, const ibv_context *context, UmrLayout &layout) {
  const ibv_exp_mem_region *pieces = umr.mem_list.mem_reg_list;
  if (pieces == nullptr && umr.num_mrs != 0) return EINVAL;
  for (std::uint32_t i = 0; i < umr.num_mrs; ++i) {
    // Not a unit: its count of 0 would mean 2 GiB.
    if (pieces[i].length == 0) continue;
    if (!usable(pieces[i].mr, context) || pieces[i].length > largest_piece) return EINVAL;
    layout.length += pieces[i].length;
    ++layout.units;
  }
  return 0;
}

inline int measure_pattern(const Umr &umr, const ibv_context *context, UmrLayout &layout) {
  const auto &pattern = umr.mem_list.rb;
  if (pattern.stride_dim != 1 || pattern.repeat_count == nullptr ||
      pattern.mem_repeat_block_list == nullptr || umr.num_mrs == 0)
    return EINVAL;
  const std::size_t repetitions = pattern.repeat_count[0];
  if (repetitions == 0 || repetitions > UINT32_MAX) return EINVAL;
  std::uint64_t cycle = 0;
  for (std::uint32_t i = 0; i < umr.num_mrs; ++i) {
    const ibv_exp_mem_repeat_block &block = pattern.mem_repeat_block_list[i];
    if (!usable(block.mr, context) || block.byte_count == nullptr || block.stride == nullptr)
      return EINVAL;
    if (block.byte_count[0] == 0 || block.byte_count[0] > largest_block ||
        block.stride[0] > largest_block)
      return EINVAL;
    cycle += block.byte_count[0];
  }
  layout.units = umr.num_mrs + 1;
  layout.length = cycle * repetitions;
  return 0;
}

}  // namespace detail

// Judges a list or pattern. 0 or EINVAL; not for other types.
inline int measure(const Umr &umr, const ibv_context *context, UmrLayout &layout) {
  layout = {};
  if (umr.num_mrs > most_pieces_of_key) return EINVAL;
  const int fault = umr.umr_type == IBV_EXP_UMR_REPEAT
                        ? detail::measure_pattern(umr, context, layout)
                        : detail::measure_list(umr, context, layout);
  if (fault != 0) return fault;
  // Over the end of the address space. A list may be empty, and so its key.
  if (layout.length != 0 && umr.base_addr + (layout.length - 1) < umr.base_addr) return EINVAL;
  return 0;
}

// Writes what was measured: layout.bytes() of them.
inline void write_units(const Umr &umr, const UmrLayout &layout, void *to) {
  auto *const start = static_cast<std::uint8_t *>(to);
  std::uint8_t *at = start;
  if (umr.umr_type == IBV_EXP_UMR_REPEAT) {
    const auto &pattern = umr.mem_list.rb;
    mlx5_wqe_umr_repeat_block_seg head{};
    head.byte_count = htobe32(static_cast<std::uint32_t>(layout.length / pattern.repeat_count[0]));
    head.op = htobe32(repeat_mark);
    head.repeat_count = htobe32(static_cast<std::uint32_t>(pattern.repeat_count[0]));
    head.num_ent = htobe16(static_cast<std::uint16_t>(umr.num_mrs));
    std::memcpy(at, &head, UmrLayout::unit);
    at += UmrLayout::unit;
    for (std::uint32_t i = 0; i < umr.num_mrs; ++i, at += UmrLayout::unit) {
      const ibv_exp_mem_repeat_block &block = pattern.mem_repeat_block_list[i];
      mlx5_wqe_umr_repeat_ent_seg entry{};
      entry.stride = htobe16(static_cast<std::uint16_t>(block.stride[0]));
      entry.byte_count = htobe16(static_cast<std::uint16_t>(block.byte_count[0]));
      entry.memkey = htobe32(block.mr->lkey);
      entry.va = htobe64(block.base_addr);
      std::memcpy(at, &entry, UmrLayout::unit);
    }
  } else {
    for (std::uint32_t i = 0; i < umr.num_mrs; ++i) {
      const ibv_exp_mem_region &piece = umr.mem_list.mem_reg_list[i];
      if (piece.length == 0) continue;
      mlx5_wqe_umr_klm_seg entry{};
      entry.byte_count =
          htobe32(piece.length == largest_piece ? 0 : static_cast<std::uint32_t>(piece.length));
      entry.mkey = htobe32(piece.mr->lkey);
      entry.address = htobe64(piece.base_addr);
      std::memcpy(at, &entry, UmrLayout::unit);
      at += UmrLayout::unit;
    }
  }
  std::memset(at, 0, static_cast<std::size_t>(start + layout.bytes() - at));
}

// Rights of the new key, as its context holds them. Local reading always.
constexpr std::uint8_t key_rights(std::uint64_t exp_access) {
  unsigned rights = MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_READ;
  if ((exp_access & IBV_EXP_ACCESS_LOCAL_WRITE) != 0)
    rights |= MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_WRITE;
  if ((exp_access & IBV_EXP_ACCESS_REMOTE_WRITE) != 0)
    rights |= MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE;
  if ((exp_access & IBV_EXP_ACCESS_REMOTE_READ) != 0)
    rights |= MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ;
  if ((exp_access & IBV_EXP_ACCESS_REMOTE_ATOMIC) != 0)
    rights |= MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC;
  return static_cast<std::uint8_t>(rights);
}

}  // namespace ibvexp::queue
