// Regions that other processes register, too: their memory is a file in /dev/shm, whose name is the
// device's and the region's handle, and whose mode says who may. Its owner holds a lock on it
// while the region exists: a file without a lock is what a process left that died. Children have the
// lock, as they have the device's descriptor, which keeps the region as well.
#pragma once

#include <infiniband/verbs_exp.h>

#include <cstdint>

#include "base/result.h"
#include "translate/state/context_state.h"

namespace ibvexp::translate {

inline constexpr std::uint64_t sharing_access =
    IBV_EXP_ACCESS_SHARED_MR_USER_READ | IBV_EXP_ACCESS_SHARED_MR_USER_WRITE |
    IBV_EXP_ACCESS_SHARED_MR_GROUP_READ | IBV_EXP_ACCESS_SHARED_MR_GROUP_WRITE |
    IBV_EXP_ACCESS_SHARED_MR_OTHER_READ | IBV_EXP_ACCESS_SHARED_MR_OTHER_WRITE;

// ibv_exp_reg_mr() with some of these. The access has been checked.
Result<ibv_mr *> register_shared(ContextState &state, ibv_exp_reg_mr_in &in);

Result<ibv_mr *> reg_shared_mr(ContextState &state, ibv_exp_reg_shared_mr_in *in);

// The region has that memory. Throws bad_alloc.
void keep_memory(ContextState &state, const ibv_mr *mr, const OwnedMemory &memory);

// Other processes find the region no more. Those that have attached to it keep its memory.
void stop_sharing(const ContextState &state, OwnedMemory &memory) noexcept;

// Memory of a region that is gone.
void release(const ContextState &state, OwnedMemory memory) noexcept;

}  // namespace ibvexp::translate
