// Events of DC targets. Linux passes on those of targets that a DEVX command made, through an event
// channel of DEVX, and drops those of targets that rdma-core made. ibv_get_async_event() waits for
// the events of the context and of that channel.
#pragma once

#include <infiniband/verbs_exp.h>

#include "base/result.h"
#include "translate/state/context_state.h"

namespace ibvexp::translate {

// One event for the next request with a wrong key. The target was made by a command.
Result<void> arm_target_events(ContextState &state, DcTarget &target);

// ibv_get_async_event() with the switch key_violations: 0, or -1 with errno set. take_own: of the
// context's own events, which waits for one. A point of cancellation, as the verb is. EINTR ends the
// wait even where a signal restarts reads.
using TakeEvent = int (*)(ibv_context *, ibv_async_event *);
int next_event(ContextState &state, ibv_async_event &event, TakeEvent take_own);

inline bool is_of_target(const ibv_async_event &event) noexcept {
  return event.event_type == static_cast<ibv_event_type>(IBV_EXP_EVENT_DCT_KEY_VIOLATION);
}
// ibv_ack_async_event() of such an event.
void acknowledge_target(const ibv_async_event &event) noexcept;

// Waits until the program has acknowledged what it was handed of a target that is gone.
void await_acknowledgements(DcTarget &gone) noexcept;

// The context is about to be closed.
void stop_target_events(ContextState &state) noexcept;

}  // namespace ibvexp::translate
