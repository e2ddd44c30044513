// Shared receive queues that match tags: libmlx5's, completing on a queue of libmlx5's that
// tells tags (queue/beside.h). The list of tags is libmlx5's, too.
#pragma once

#include <infiniband/verbs_exp.h>

#include "base/result.h"
#include "translate/state/context_state.h"

namespace ibvexp::translate {

// Judges what is particular to them.
Result<void> check_tags(const ContextState &state, const ibv_exp_create_srq_attr &attr);

// Lets the completion queue tell tags; before it is chosen who completes there.
void ask_for_tags(const ContextState &state, ibv_cq *cq) noexcept;

// Whether it does. cq: rdma-core's.
bool tells_tags(ContextState &state, const ibv_cq *cq) noexcept;

// The program's queue.
bool matches_tags(const ibv_srq *srq) noexcept;

Result<void> post_srq_ops(ibv_srq *srq, ibv_exp_ops_wr *op, ibv_exp_ops_wr **bad_op);

}  // namespace ibvexp::translate
