// Queue pairs of cross-channel. rdma-core takes none of their creation flags, and the kernel takes
// them in one command, which rdma-core sends without. So rdma-core makes a queue pair as usual, the
// kernel a second one on the same rings, and the first one goes: from then on rdma-core's object
// stands for the second.
#pragma once

#include "base/result.h"
#include "translate/convert/qp_convert.h"
#include "translate/state/context_state.h"

namespace ibvexp::translate {

// Replaces what the kernel has behind `made`, as modern.channel asks for. The register that the new
// one rings, of the context. After a failure `made` is to be destroyed.
Result<void *> join_channel(ContextState &state, ibv_qp *made, const ModernQpInit &modern);

// Makes a master for a try. 0, or why not.
int make_master(ContextState &state);

// The page of the registers goes with the context.
void free_channel_page(ContextState &state) noexcept;

// Posts lists to queue pairs, one after the other.
Result<void> post_task(ContextState &state, ibv_context *, ibv_exp_task *task,
                       ibv_exp_task **bad_task);

}  // namespace ibvexp::translate
