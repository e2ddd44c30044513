// Reading the device's clock.
#pragma once

#include <infiniband/verbs_exp.h>

#include <cstdint>

#include "base/result.h"

namespace ibvexp::translate {

Result<void> query_values(ibv_context *context, int q_values, ibv_exp_values *values);
Result<std::uint64_t> cqe_ts_to_ns(ibv_exp_clock_info *clock, std::uint64_t ts);

}  // namespace ibvexp::translate
