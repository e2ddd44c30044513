// Indirect memory keys, which work requests (UMR) fill.
#pragma once

#include <infiniband/verbs_exp.h>

#include "base/result.h"
#include "translate/convert/umr_limits.h"
#include "translate/state/context_state.h"

namespace ibvexp::translate {

Result<ibv_mr *> create_mr(ContextState &state, ibv_exp_create_mr_in *in);
Result<void> query_mkey(ContextState &state, ibv_mr *mr, ibv_exp_mkey_attr *attr);
Result<ibv_exp_mkey_list_container *> alloc_mkey_list_memory(
    ContextState &state, ibv_exp_mkey_list_container_attr *attr);
Result<void> dealloc_mkey_list_memory(ContextState &state, ibv_exp_mkey_list_container *memory);

// Releases the key of create_mr(). Returns what ibv_dereg_mr() returns.
int destroy_key(ContextState &state, IndirectKey &key);

// A key of rdma-core's with room for that many entries, which become what was granted. Null and
// errno.
mlx5dv_mkey *make_mkey(ibv_pd *pd, std::uint32_t &entries);

}  // namespace ibvexp::translate
