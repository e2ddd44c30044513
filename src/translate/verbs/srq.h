// Shared receive queues.
#pragma once

#include <infiniband/verbs_exp.h>

#include "base/result.h"

namespace ibvexp::translate {

Result<ibv_srq *> create_srq(ibv_context *context, ibv_exp_create_srq_attr *attr);

}  // namespace ibvexp::translate
