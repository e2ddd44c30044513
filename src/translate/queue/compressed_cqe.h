// Compressed completions, expanded in place. No calls.
//
// A title entry stands for n completions and fills n slots: the slot behind it
// has an array of eight small entries for the first eight of them, and every
// eighth slot from there on another one. libmlx5 cannot read that. All n slots
// belong to software once the title does, so full entries are written over them
// before libmlx5 looks.
#pragma once

#include "translate/state/cq_state.h"
#include "translate/queue/engine/cqe.h"
#include "translate/queue/engine/barrier.h"

#include <infiniband/mlx5dv.h>

#include <cstdint>
#include <cstring>

namespace ibvexp::translate {

inline constexpr std::uint8_t format_compressed = 3;
inline constexpr std::uint32_t ci_mask = 0xffffff;

// Entry n of the queue, n counted from the beginning; size entries.
inline mlx5_cqe64 *cqe_at(const CqRing &ring, std::uint32_t n, std::uint32_t size) {
  std::uint8_t *slot = ring.entries + std::size_t{n & (size - 1)} * ring.entry_size;
  return reinterpret_cast<mlx5_cqe64 *>(ring.entry_size == 128 ? slot + 64 : slot);
}

inline std::uint8_t owner_bit(std::uint32_t n, std::uint32_t size) { return (n & size) != 0; }

// Whether the device has written entry n.
inline bool is_written(const mlx5_cqe64 &cqe, std::uint32_t n, std::uint32_t size) {
  const std::uint8_t op_own = engine::read_owner(&cqe.op_own);
  return op_own >> 4 != MLX5_CQE_INVALID && (op_own & 1) == owner_bit(n, size);
}

// Writes the completions that the title in entry n stands for, without time
// stamps: there is one for all of them. Returns how many.
inline std::uint32_t expand_session(const CqRing &ring, std::uint32_t n, std::uint32_t size) {
  const mlx5_cqe64 title = *cqe_at(ring, n, size);
  const std::uint32_t count = engine::session_length(be32toh(title.byte_cnt), size);
  const std::uint16_t first = be16toh(title.wqe_counter);
  std::uint8_t small[64];
  for (std::uint32_t i = 0; i < count; ++i) {
    if (i % 8 == 0) std::memcpy(small, cqe_at(ring, n + (i == 0 ? 1 : i), size), sizeof(small));
    const std::uint8_t *mini = small + i % 8 * 8;
    mlx5_cqe64 full = title;
    auto *raw = reinterpret_cast<std::uint8_t *>(&full);
    if (ring.mini_has_hash) std::memcpy(raw + 12, mini, 4);
    else std::memcpy(raw + 20, mini + 2, 2);  // the checksum
    std::memcpy(&full.byte_cnt, mini + 4, 4);
    full.timestamp = 0;
    full.wqe_counter = htobe16(static_cast<std::uint16_t>(first + i));
    full.op_own = static_cast<std::uint8_t>((title.op_own & 0xf2) | owner_bit(n + i, size));
    *cqe_at(ring, n + i, size) = full;
  }
  return count;
}

// Expands what lies in front of a poller that takes at most wanted completions.
// The caller keeps others from polling.
inline void expand(const CqRing &ring, std::uint32_t size, int wanted) {
  std::uint32_t n = be32toh(*ring.doorbell) & ci_mask;
  for (int i = 0; i < wanted;) {
    const mlx5_cqe64 &cqe = *cqe_at(ring, n, size);
    if (!is_written(cqe, n, size)) return;
    std::uint32_t step = 1;
    if ((cqe.op_own >> 2 & 3) == format_compressed) step = expand_session(ring, n, size);
    n += step;
    i += static_cast<int>(step);
  }
}

}  // namespace ibvexp::translate
