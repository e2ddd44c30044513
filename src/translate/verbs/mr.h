// Memory regions.
#pragma once

#include <infiniband/verbs_exp.h>

#include "base/result.h"
#include "translate/state/context_state.h"

namespace ibvexp::translate {

Result<ibv_mr *> reg_mr(ContextState &state, ibv_exp_reg_mr_in *in);
Result<void> rereg_mr(ContextState &state, ibv_mr *mr, int flags, ibv_pd *pd, void *addr,
                      std::size_t length, std::uint64_t exp_access, ibv_exp_rereg_mr_attr *attr);
Result<void> prefetch_mr(ibv_mr *mr, ibv_exp_prefetch_attr *attr);

// ibv_dereg_mr, and unmaps what reg_mr() mapped. Returns what that returns.
int dereg_mr(ContextState *state, ibv_mr *mr);

}  // namespace ibvexp::translate
