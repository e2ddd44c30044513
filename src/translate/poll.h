// Taking completions.
#pragma once

#include "result.h"

#include <infiniband/verbs_exp.h>

#include <cstdint>

namespace ibvexp::translate {

Result<int> poll_cq(ibv_cq *cq, int num_entries, ibv_exp_wc *wc, std::uint32_t wc_size);

}  // namespace ibvexp::translate
