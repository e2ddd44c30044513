// Posting through libmlx5's builders, as the legacy provider posted: what comes before the first
// bad request is posted, the caller learns which one is bad, a full queue answers ENOMEM.
#pragma once

#include "translate/convert/qp_convert.h"
#include "translate/state/context_state.h"

namespace ibvexp::native {

// Opens a queue pair that translate::make_qp() made for builders. With the context's mutex. Throws
// bad_alloc.
void open(ContextState &state, QpState &known, ibv_qp *qp, const translate::ModernQpInit &modern);

// 0, or an errno value with bad set. refused: flags that no request may carry.
int build_chain(Builders &builders, ibv_exp_send_wr *wr, std::uint64_t refused,
                ibv_exp_send_wr *&bad);

// The same for ibv_post_send(). A DC initiator cannot be addressed there: EINVAL.
int build_chain(Builders &builders, ibv_send_wr *wr, ibv_send_wr *&bad);

}  // namespace ibvexp::native
