// ibv_exp_poll_cq() for queues of ours.
#pragma once

#include "translate/state/cq_state.h"

namespace ibvexp::direct {

// A CqPoll. Refuses queues on which multi-packet receive queues complete, unless
// IBVEXP_BEYOND=mp_rq_poll.
Result<int> exp_poll(ContextState &context, CqState &state, ibv_cq *cq, int num_entries,
                     ibv_exp_wc *wc, std::uint32_t wc_size);

}  // namespace ibvexp::direct
