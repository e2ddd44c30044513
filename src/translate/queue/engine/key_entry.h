// The head of an entry that changes a memory key: what changes, and the new
// context of the key. Filling and invalidating indirect keys and binding windows
// are such entries. The builders of mlx5dv leave the start address out, so that
// their keys begin at 0.
#pragma once

#include "translate/queue/engine/raw_wqe.h"

namespace ibvexp::engine {

// No name in mlx5dv.h.
inline constexpr std::uint64_t mask_local_read = 1ull << 17;

struct KeyEntry {
  mlx5_wqe_umr_ctrl_seg &change;
  mlx5_wqe_mkey_context_seg &context;
};

// An entry for the key; the queue pair that owns it, or any.
inline KeyEntry begin_key_entry(RawWqe &wqe, std::uint32_t key, std::uint32_t owner = 0xffffff) {
  wqe.begin(MLX5_OPCODE_UMR, 0, htobe32(key));
  auto &change = wqe.append<mlx5_wqe_umr_ctrl_seg>();
  auto &context = wqe.append<mlx5_wqe_mkey_context_seg>();
  context.qpn_mkey = htobe32(owner << 8 | (key & 0xff));
  return {change, context};
}

}  // namespace ibvexp::engine
