// Raw data path functions, for programs that want to call them without dispatch.
#pragma once

#include <infiniband/verbs_exp.h>

#include "base/result.h"

namespace ibvexp::translate {

// Functions that serve every object of the context; ENOSYS for an unknown name,
// as the inline has it.
Result<void *> get_provider_func(ibv_context *context, ibv_exp_func_name name);

}  // namespace ibvexp::translate
