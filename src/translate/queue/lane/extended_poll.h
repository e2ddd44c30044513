// The lane under completion queues that a program polls by ibv_start_poll(): such
// a queue carries its functions itself, past the context's.
#pragma once

#include "translate/state/context_state.h"

namespace ibvexp::lane {

// Before a queue pair of the lane that completes there is handed out. Nothing if
// the queue is not of that kind, or of this library. Throws bad_alloc.
void install(ContextState &state, ibv_cq *cq);

}  // namespace ibvexp::lane
