// Shared receive queues that match tags: libmlx5's, as is the CQ beside the program's that they
// complete on, whose completions have the tag (queue/beside.h). libmlx5 also keeps the list of tags.
#pragma once

#include <infiniband/verbs_exp.h>

#include "base/result.h"
#include "translate/queue/front.h"
#include "translate/state/context_state.h"

namespace ibvexp::translate {

// Judges what is particular to them.
Result<void> check_tags(const ContextState &state, const ibv_exp_create_srq_attr &attr);

// From before it is chosen who completes on the program's CQ: what libmlx5 completes there has
// the tag. As before unless it is kept. cq may be null.
class TaggedCq {
 public:
  TaggedCq(const ContextState &state, ibv_cq *cq) noexcept;
  ~TaggedCq();
  TaggedCq(const TaggedCq &) = delete;
  TaggedCq &operator=(const TaggedCq &) = delete;
  void keep() noexcept { before_ = true; }

 private:
  void set(bool tags) noexcept;

  const ContextState &state_;
  queue::CqFront *const front_;
  bool before_ = false;
};

// Whether completions have the tag. cq: rdma-core's.
bool has_tags(ContextState &state, const ibv_cq *cq) noexcept;

// The program's queue.
bool matches_tags(const ibv_srq *srq) noexcept;

Result<void> post_srq_ops(ibv_srq *srq, ibv_exp_ops_wr *op, ibv_exp_ops_wr **bad_op);

}  // namespace ibvexp::translate
