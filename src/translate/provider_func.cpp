#include "provider_func.h"

#include <cerrno>

namespace ibvexp::translate {

Result<void *> get_provider_func(ibv_context *context, ibv_exp_func_name name) {
  const verbs_context_exp *table = verbs_get_exp_ctx(context);
  if (table == nullptr) return Error{ENOSYS};
  switch (name) {
    case IBV_EXP_POST_SEND_FUNC: return reinterpret_cast<void *>(table->drv_exp_post_send);
    case IBV_EXP_POLL_CQ_FUNC: return reinterpret_cast<void *>(table->drv_exp_ibv_poll_cq);
    case IBV_POST_SEND_FUNC: return reinterpret_cast<void *>(context->ops.post_send);
    case IBV_POLL_CQ_FUNC: return reinterpret_cast<void *>(context->ops.poll_cq);
    case IBV_POST_RECV_FUNC: return reinterpret_cast<void *>(context->ops.post_recv);
  }
  return Error{ENOSYS};
}

}  // namespace ibvexp::translate
