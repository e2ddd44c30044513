// Under the base verbs of a context with queue pairs on builders: ibv_post_send() and
// ibv_poll_cq() count their requests. Other contexts do not pay.
#pragma once

#include "translate/state/context_state.h"

namespace ibvexp::native {

// Once for a context. Before such a queue pair is handed out.
void install_hooks(ContextState &state) noexcept;

// Counts a completion, and puts the legacy opcode in. Of every completion that comes by another
// way than the context's poll_cq. wr_id, status, opcode and qp_num are read.
void settle(const ContextState &state, ibv_wc &wc) noexcept;

}  // namespace ibvexp::native
