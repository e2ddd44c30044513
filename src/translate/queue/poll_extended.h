// Polling a completion queue whose buffer this library knows (cq_memory.h): for
// what ibv_wc cannot carry.
#pragma once

#include "translate/state/cq_state.h"

namespace ibvexp::translate {

// libmlx5 takes the entries (ibv_start_poll(), ibv_next_poll()), which keeps its
// queues in order, and what they say is read from the entries themselves. That is
// cheaper than its readers, and they stay in place until ibv_end_poll().
Result<int> poll_extended(ContextState &context, CqState &state, ibv_cq *cq, int num_entries,
                          ibv_exp_wc *wc, std::uint32_t wc_size);

}  // namespace ibvexp::translate
