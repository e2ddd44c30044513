// Posting a chain through the builder lane, with the manners of the legacy
// provider: what comes before the first bad request is posted, the caller learns
// which one is bad, a full queue answers ENOMEM and nothing is harmed.
#pragma once

#include "translate/state/lane.h"

#include <infiniband/verbs_exp.h>

namespace ibvexp::lane {

// 0, or a positive errno value with bad set. refused: flags that no request may
// carry.
int post(Lane &lane, ibv_exp_send_wr *wr, std::uint64_t refused, ibv_exp_send_wr *&bad);

// The same for ibv_post_send(). A DC initiator cannot be addressed there: EINVAL.
int post(Lane &lane, ibv_send_wr *wr, ibv_send_wr *&bad);

}  // namespace ibvexp::lane
