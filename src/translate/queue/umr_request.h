// What a request that fills or invalidates an indirect key asks for, judged.
#pragma once

#include "translate/queue/umr_layout.h"
#include "translate/state/context_state.h"

namespace ibvexp::queue {

// 0 with key and layout set, of which the layout is empty for an invalidation. Otherwise what
// the legacy provider answered, logged. max_pieces: granted to the queue pair; 0: it takes none.
int judge_umr(ibv_context *context, const ibv_exp_send_wr &wr, std::uint32_t max_pieces,
              const IndirectKey *&key, UmrLayout &layout);

}  // namespace ibvexp::queue
