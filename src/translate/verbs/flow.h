// Flow steering.
#pragma once

#include "base/result.h"

#include <infiniband/verbs_exp.h>

namespace ibvexp::translate {

Result<ibv_exp_flow *> create_flow(ibv_qp *qp, ibv_exp_flow_attr *attr);
Result<void> destroy_flow(ibv_exp_flow *flow);

}  // namespace ibvexp::translate
