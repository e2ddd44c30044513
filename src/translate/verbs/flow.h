// Flow steering.
#pragma once

#include <infiniband/verbs_exp.h>

#include "base/result.h"
#include "translate/state/context_state.h"

namespace ibvexp::translate {

Result<ibv_exp_flow *> create_flow(ContextState &state, ibv_qp *qp, ibv_exp_flow_attr *attr);
Result<void> destroy_flow(ContextState &state, ibv_exp_flow *flow);

}  // namespace ibvexp::translate
