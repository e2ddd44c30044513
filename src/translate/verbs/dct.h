// Targets of the DC transport. The legacy object was live when it was made; in
// rdma-core it is a queue pair that comes to life in the last of three steps. The
// queue pair is hidden behind an object of ours. With the switch key_violations a command makes the
// target, since rdma-core's cannot be armed.
//
// Inlines hold context->mutex around these calls; exp/op_table.cpp gives it back meanwhile.
#pragma once

#include <infiniband/verbs_exp.h>

#include "base/result.h"
#include "translate/state/context_state.h"

namespace ibvexp::translate {

Result<ibv_exp_dct *> create_dct(ContextState &state, ibv_context *context,
                                 ibv_exp_dct_init_attr *attr);
Result<void> destroy_dct(ContextState &state, ibv_exp_dct *dct);
Result<void> query_dct(ContextState &state, ibv_exp_dct *dct, ibv_exp_dct_attr *attr);
Result<void> arm_dct(ContextState &state, ibv_exp_dct *dct, ibv_exp_arm_attr *attr);

// Whether a DC target that a command of DEVX made uses the CQ or SRQ, which is rdma-core's. The kernel
// counts only targets of rdma-core as users, and stops the queue's events before the firmware
// refuses to destroy it. Takes state.mutex.
bool find_target_by_command(ContextState &state, const void *queue);

// The same, without the lock in a context that never had such a target.
inline bool has_targets_by_command(ContextState &state, const void *queue) {
  return state.targets_by_command && find_target_by_command(state, queue);
}

}  // namespace ibvexp::translate
