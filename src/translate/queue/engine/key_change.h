// UMR requests in the form that most have: an indirect key, filled from a list or a
// pattern that is in the request's entry.
#pragma once

#include "translate/queue/engine/request.h"
#include "translate/queue/engine/send_queue.h"

namespace ibvexp {
struct ContextState;
}

namespace ibvexp::engine {

// For a queue that is open and has its other refusals set. pieces: the most that an
// entry has been granted.
void allow_some_key_changes(SendQueue &queue, const ContextState &state, std::uint32_t pieces);
inline void allow_key_changes(SendQueue &queue, const ContextState &state, std::uint32_t pieces) {
  if (pieces != 0) allow_some_key_changes(queue, state, pieces);
}

// Writes such requests straight into the queue, as many as a chain begins with, until so
// many have been posted as limit says. The first one has the opcode; there is room for it.
// What follows is for umr.cpp to judge, what has to be refused too.
Written<ibv_exp_send_wr> put_key_changes(SendQueue &queue, ibv_exp_send_wr *wr,
                                         std::uint32_t limit);

}  // namespace ibvexp::engine
