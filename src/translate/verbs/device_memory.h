// Memory on the device.
#pragma once

#include <infiniband/verbs_exp.h>

#include "base/result.h"
#include "translate/state/context_state.h"

namespace ibvexp::translate {

Result<ibv_exp_dm *> alloc_dm(ContextState &state, ibv_context *context,
                              ibv_exp_alloc_dm_attr *attr);
Result<void> free_dm(ContextState &state, ibv_exp_dm *dm);
Result<void> memcpy_dm(ContextState &state, ibv_exp_dm *dm, ibv_exp_memcpy_dm_attr *attr);

struct FoundMemory {
  ibv_dm *dm;  // null: not ours
  std::size_t length;

  bool holds(std::uint64_t offset, std::size_t bytes) const {
    return bytes <= length && offset <= length - bytes;
  }
};
// What is behind a handle.
inline FoundMemory find_dm(ContextState &state, const ibv_exp_dm *dm) {
  const DeviceMemory *known = state.device_memory.find(dm);
  return known != nullptr ? FoundMemory{known->dm, known->length} : FoundMemory{};
}

}  // namespace ibvexp::translate
