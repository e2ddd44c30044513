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

}  // namespace ibvexp::translate
