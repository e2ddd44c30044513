// Shared receive queues that match tags: libmlx5's, as is the CQ beside the program's that they
// complete on, whose completions have the tag (queue/beside.h). libmlx5 also keeps the list of tags.
#pragma once

#include <infiniband/verbs_exp.h>

#include "base/result.h"
#include "translate/queue/front.h"
#include "translate/state/context_state.h"

namespace ibvexp::translate {

// The program's queue.
bool matches_tags(const ibv_srq *srq) noexcept;

// The program's queue is one of strides.
bool is_of_strides(const ibv_srq *srq) noexcept;

Result<void> post_srq_ops(ibv_srq *srq, ibv_exp_ops_wr *op, ibv_exp_ops_wr **bad_op);

}  // namespace ibvexp::translate
