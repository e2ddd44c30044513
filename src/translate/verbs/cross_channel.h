// Queue pairs of cross-channel. rdma-core takes none of their creation flags, and the kernel takes
// them in one command, which rdma-core sends without. So rdma-core makes a queue pair as usual, the
// kernel a second one on the same rings, and the first one goes: from then on rdma-core's object
// stands for the second.
#pragma once

#include <infiniband/mlx5dv.h>

#include "base/result.h"
#include "translate/convert/qp_convert.h"
#include "translate/state/context_state.h"

namespace ibvexp::translate {

// Replaces what the kernel has behind `made`, which no thread uses yet, as modern.channel asks for:
// IBV_EXP_QP_CREATE_CROSS_CHANNEL, MANAGED_SEND and MANAGED_RECV. The answer is the register that
// the new one rings; it belongs to the context. ENOTSUP, logged, for types other than RC, UC and UD
// and where the kernel refuses the flags. After a failure `made` is to be destroyed.
Result<void *> join_channel(ContextState &state, ibv_qp *made, const ModernQpInit &modern);

// Creates a master and destroys it again: 0, or the errno value of what failed.
int try_master(ContextState &state, ibv_pd *pd, ibv_cq *cq);

// A page of registers, made when it is first asked for.
Result<const mlx5dv_devx_uar *> channel_page(ContextState &state);

// The page of the registers goes with the context.
void free_channel_page(ContextState &state) noexcept;

// Posts each task's list to its queue pair, in order. After a failure *bad_task is the task that
// failed, and what the tasks before it posted stays posted. EINVAL for unknown types and bits, and
// for queue pairs of other contexts.
Result<void> post_task(ContextState &state, ibv_context *, ibv_exp_task *task,
                       ibv_exp_task **bad_task);

}  // namespace ibvexp::translate
