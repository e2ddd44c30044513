// Posting work requests.
#pragma once

#include "result.h"

#include <infiniband/verbs_exp.h>

namespace ibvexp::translate {

Result<void> post_send(ibv_qp *qp, ibv_exp_send_wr *wr, ibv_exp_send_wr **bad_wr);

}  // namespace ibvexp::translate
