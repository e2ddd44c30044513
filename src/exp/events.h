// The objects that asynchronous events name.
#pragma once

#include "translate/state/context_state.h"

namespace ibvexp {

// What the program knows, for what rdma-core names.
void show_object(ContextState *state, ibv_async_event &event) noexcept;

// And back, to acknowledge it: the program's object counts it, too.
void acknowledge_object(ibv_async_event &event) noexcept;

}  // namespace ibvexp
