// Interface families.
#pragma once

#include <infiniband/verbs_exp.h>

#include "base/result.h"
#include "translate/state/context_state.h"

namespace ibvexp::translate {

// A failure is reported through *status: the result is null then, and no error.
Result<void *> query_intf(ContextState &state, ibv_context *context,
                          ibv_exp_query_intf_params *params, ibv_exp_query_intf_status *status);
Result<void> release_intf(ContextState &state, ibv_context *context, void *intf,
                          ibv_exp_release_intf_params *params);

}  // namespace ibvexp::translate
