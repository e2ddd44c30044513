// Posting on rdma-core's own data path.
#pragma once

#include "base/result.h"
#include "translate/state/context_state.h"

namespace ibvexp::native {

// ibv_exp_post_send() of rdma-core's queue pair, by ibv_post_send() or libmlx5's builders.
Result<void> post_send(ibv_qp *qp, ibv_exp_send_wr *wr, ibv_exp_send_wr **bad_wr);

// The errno for an opcode that is not basic, logged.
int refuse_other(int opcode);

}  // namespace ibvexp::native
