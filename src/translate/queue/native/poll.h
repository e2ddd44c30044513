// Taking completions from rdma-core's own data path.
#pragma once

#include "base/result.h"
#include "translate/state/context_state.h"

namespace ibvexp::native {

// ibv_exp_poll_cq() of rdma-core's CQ, by ibv_poll_cq(), or by ibv_start_poll() if its completions
// have time stamps or tags. Each element of wc has room for an ibv_wc.
Result<int> poll_cq(ibv_cq *cq, int num_entries, ibv_exp_wc *wc, std::uint32_t wc_size);

}  // namespace ibvexp::native
