// Memory windows of type 1. Those of type 2 are bound by work requests.
#pragma once

#include <infiniband/verbs_exp.h>

#include "base/result.h"
#include "translate/state/context_state.h"

namespace ibvexp::translate {

Result<void> bind_mw(ContextState &state, ibv_exp_mw_bind *bind);

}  // namespace ibvexp::translate
