// Reading the device's clock.
#pragma once

#include "base/result.h"

#include <infiniband/verbs_exp.h>

#include <cstdint>

namespace ibvexp::translate {

Result<void> query_values(ibv_context *context, int q_values, ibv_exp_values *values);
Result<std::uint64_t> cqe_ts_to_ns(ibv_exp_clock_info *clock, std::uint64_t ts);

// The page on which the kernel keeps both clocks; an errno value where there is
// none.
Result<ibv_exp_clock_info> read_clock_info(ibv_context *context);

}  // namespace ibvexp::translate
