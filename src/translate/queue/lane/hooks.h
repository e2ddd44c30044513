// The lane under the base verbs: ibv_post_send() and ibv_poll_cq() of a context
// with queue pairs in the lane. Nobody else pays.
#pragma once

#include "translate/state/context_state.h"

namespace ibvexp::lane {

// Puts the lane under the context's operations, once. Before a queue pair of the
// lane is handed out.
void install(ContextState &state) noexcept;

// What libmlx5 said about a completion, put right: the request's legacy opcode and
// length, and its place in the queue given back. For every completion that comes
// by another way than the context's poll_cq. wr_id, status and qp_num are read.
void settle(const ContextState &state, ibv_wc &wc) noexcept;

}  // namespace ibvexp::lane
