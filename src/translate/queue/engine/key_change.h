// The usual UMR requests: an indirect key, filled from a list or a pattern that is inline
// in the request's entry.
#pragma once

#include "translate/queue/engine/request.h"
#include "translate/queue/engine/send_queue.h"

namespace ibvexp {
struct ContextState;
}

namespace ibvexp::engine {

// Call when the queue is open and its other refusals are set. pieces: the most that an
// entry was granted.
void allow_some_key_changes(SendQueue &queue, const ContextState &state, std::uint32_t pieces);
inline void allow_key_changes(SendQueue &queue, const ContextState &state, std::uint32_t pieces) {
  if (pieces != 0) allow_some_key_changes(queue, state, pieces);
}

// Writes the requests of this kind at the beginning of a chain, until `limit` have been posted.
// The first one has the opcode, and there is room for it. Stops at the first request of
// another kind, or to be refused: umr.cpp handles that one.
Written<ibv_exp_send_wr> put_key_changes(SendQueue &queue, ibv_exp_send_wr *wr,
                                         std::uint32_t limit);

}  // namespace ibvexp::engine
