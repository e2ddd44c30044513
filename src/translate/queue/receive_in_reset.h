// Receives that a program posts to a queue pair before INIT. The legacy provider took
// them, libmlx5 (since v40) does not: they are kept, and handed over in order when the
// queue pair goes to INIT. Only a context with a queue pair in RESET pays for it.
#pragma once

#include "translate/state/context_state.h"

namespace ibvexp::translate {

// A queue pair that comes to exist. The caller holds the mutex.
void enter_reset(ContextState &state, QpState &known) noexcept;

// A queue pair that goes: what it was given is dropped. The caller holds the mutex.
void leave_reset(ContextState &state, QpState &known) noexcept;

// After a change of state that succeeded.
void after_reset(ContextState &state, QpState &known, ibv_qp *qp, ibv_qp_state now) noexcept;

}  // namespace ibvexp::translate
