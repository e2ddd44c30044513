#include "translate/verbs/provider_func.h"

#include <cerrno>

namespace ibvexp::translate {

namespace {

// As the inlines: what serves an object may change while it lives, so a program
// does not get to keep the function of the moment.
int post_send(ibv_qp *qp, ibv_send_wr *wr, ibv_send_wr **bad_wr) {
  return qp->context->ops.post_send(qp, wr, bad_wr);
}
int post_recv(ibv_qp *qp, ibv_recv_wr *wr, ibv_recv_wr **bad_wr) {
  return qp->context->ops.post_recv(qp, wr, bad_wr);
}
int poll_cq(ibv_cq *cq, int num_entries, ibv_wc *wc) {
  return cq->context->ops.poll_cq(cq, num_entries, wc);
}

}  // namespace

Result<void *> get_provider_func(ibv_context *context, ibv_exp_func_name name) {
  const verbs_context_exp *table = verbs_get_exp_ctx(context);
  if (table == nullptr) return Error{ENOSYS};
  switch (name) {
    case IBV_EXP_POST_SEND_FUNC: return reinterpret_cast<void *>(table->drv_exp_post_send);
    case IBV_EXP_POLL_CQ_FUNC: return reinterpret_cast<void *>(table->drv_exp_ibv_poll_cq);
    case IBV_POST_SEND_FUNC: return reinterpret_cast<void *>(&post_send);
    case IBV_POLL_CQ_FUNC: return reinterpret_cast<void *>(&poll_cq);
    case IBV_POST_RECV_FUNC: return reinterpret_cast<void *>(&post_recv);
  }
  return Error{ENOSYS};
}

}  // namespace ibvexp::translate
