#include "translate/queue/direct/dispatch.h"

#include "base/log.h"
#include "translate/queue/direct/completion.h"
#include "translate/queue/direct/receive.h"
#include "translate/queue/direct/send.h"
#include "translate/state/context_state.h"

namespace ibvexp::direct {

namespace {

// These functions are in place only where there is a context of ours.
const Context &context_of(ibv_context *context) { return *find_state(context)->direct; }

[[gnu::cold]] void complain(const ibv_qp *qp, const ibv_send_wr *wr, int error) {
  if (error == ENOMEM) return;
  log(LogLevel::warn,
      "ibv_post_send: QP %#x is driven by an interface family: opcode %d, flags %#x: errno %d",
      qp->qp_num, static_cast<int>(wr->opcode), wr->send_flags, error);
}

}  // namespace

bool owns_send(const ContextState &state, const ibv_qp *qp) noexcept {
  const Endpoint *endpoint = find(state.direct.get(), qp);
  return endpoint != nullptr && endpoint->owns_send;
}

int post_send(ibv_qp *qp, ibv_send_wr *wr, ibv_send_wr **bad_wr) {
  const Context &context = context_of(qp->context);
  Endpoint *endpoint = find(&context, qp);
  if (endpoint == nullptr || !endpoint->owns_send) return context.post_send(qp, wr, bad_wr);

  const Guard guard(endpoint->send.lock);
  int error = 0;
  for (; wr != nullptr; wr = wr->next) {
    error = qp->state < IBV_QPS_RTS ? EINVAL : put_request(*endpoint, *wr);
    if (error != 0) [[unlikely]] {
      complain(qp, wr, error);
      if (bad_wr != nullptr) *bad_wr = wr;
      break;
    }
  }
  endpoint->send.ring_doorbell();
  return error;
}

int post_recv(ibv_qp *qp, ibv_recv_wr *wr, ibv_recv_wr **bad_wr) {
  const Context &context = context_of(qp->context);
  Endpoint *endpoint = find(&context, qp);
  if (endpoint == nullptr || !endpoint->owns_receive) return context.post_recv(qp, wr, bad_wr);

  ReceiveQueue &queue = endpoint->receive;
  const Guard guard(queue.lock);
  int error = 0;
  for (; wr != nullptr; wr = wr->next) {
    error =
        qp->state == IBV_QPS_RESET || wr->num_sge < 0 ||
                (wr->num_sge != 0 && wr->sg_list == nullptr)
            ? EINVAL
            : put_receive(queue, wr->sg_list, static_cast<std::uint32_t>(wr->num_sge), wr->wr_id);
    if (error != 0) [[unlikely]] {
      if (bad_wr != nullptr) *bad_wr = wr;
      break;
    }
  }
  queue.ring_doorbell();
  return error;
}

int poll_cq(ibv_cq *cq, int num_entries, ibv_wc *wc) {
  const Context &context = context_of(cq->context);
  CompletionQueue *own = find(&context, cq);
  return own != nullptr ? poll(*own, num_entries, wc) : context.poll_cq(cq, num_entries, wc);
}

int req_notify_cq(ibv_cq *cq, int solicited_only) {
  const Context &context = context_of(cq->context);
  CompletionQueue *own = find(&context, cq);
  if (own == nullptr) return context.req_notify_cq(cq, solicited_only);
  request_notification(*own, solicited_only != 0);
  return 0;
}

}  // namespace ibvexp::direct
