// What turns the device's cycles into the time of day.
#pragma once

#include <infiniband/verbs_exp.h>

#include "base/result.h"

namespace ibvexp::translate {

// The page on which the kernel keeps both clocks; an errno value where there is
// none.
Result<ibv_exp_clock_info> read_clock_info(ibv_context *context);

}  // namespace ibvexp::translate
