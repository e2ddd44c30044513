// Asynchronous events, with the objects that the program knows.
#pragma once

#include "translate/state/context_state.h"

namespace ibvexp {

// The base verbs of these names. The first is a point of cancellation.
int get_async_event(ibv_context *context, ibv_async_event *event);
void ack_async_event(ibv_async_event *event) noexcept;

}  // namespace ibvexp
