// Queue pair states and what entering them means. Attribute rules are the
// kernel's and live in the command layer.
#include "model/qp.h"

#include "base/log.h"
#include "model/device.h"
#include "model/eth_queue.h"
#include "model/requester.h"
#include "model/responder.h"
#include "model/tag_matching.h"

namespace softhca {

Qp::Qp() = default;
Qp::~Qp() = default;

namespace {

// Raw packet QPs have no transport: their frames go where flow rules say.
bool receives(const Qp &qp) {
  return qp.type != QpType::dci && qp.type != QpType::xrc_ini && qp.type != QpType::raw_packet;
}

void enter_reset(Qp &qp) {
  qp.rung = 0;
  qp.send_released = qp.receive_released = 0;
  qp.sq_consumed = 0;
  qp.rq_consumed = 0;
  qp.last_wqe_raised = false;
  qp.send_pages = qp.receive_pages = PageWait::none;
  qp.comm_est_raised = false;
  qp.send.reset();
  qp.responder.reset();
}

void enter_rtr(Qp &qp) {
  if (!receives(qp)) return;
  qp.responder = std::make_unique<Responder>();
  qp.responder->expected_psn = qp.attr.rq_psn;
}

void enter_rts(Qp &qp) {
  // Tag matching uses the connection to read, also without a send queue.
  if (qp.sq_wqebbs == 0 && (qp.srq == nullptr || !qp.srq->tags)) return;
  if (qp.send) {  // from SQE or SQD: the queue goes on where it stopped
    qp.send->blocked = false;
    qp.send->draining = false;
    return;
  }
  qp.send = std::make_unique<SendEngine>();
  SendEngine &send = *qp.send;
  send.next_psn = qp.attr.sq_psn;
  send.acked_psn = send.nak_psn = psn_add(qp.attr.sq_psn, 0xffffff);
  send.retries_left = qp.attr.retry_count;
  send.rnr_left = qp.attr.rnr_retry;
  // Connection numbers of an earlier life of this QP must not match.
  send.connection = static_cast<u32>(device_clock_ns());
}

void enter_error(Qp &qp) {
  flush_send(qp);
  if (qp.responder) {
    abandon_message(qp, *qp.responder);
    for (const auto &[peer, connection] : qp.responder->connections)
      abandon_message(qp, *connection);
    // Still send the NAK that ended the connection, and acknowledges that were due before it:
    // the ring to the peer may be full, or not open yet if this was its first request.
    auto &responses = qp.responder->responses;
    if (!responses.empty() && !responses.back().ends()) responses.clear();
  }
  qp_flush_receive(qp);
  // With an SRQ there is nothing of the QP's own to flush: an event says that
  // it takes no more WQEs.
  if (qp.srq != nullptr && !qp.last_wqe_raised) {
    qp.last_wqe_raised = true;
    qp_event(qp, EventType::qp_last_wqe);
  }
}

}  // namespace

void qp_set_state(Qp &qp, QpState state) {
  const QpState before = qp.state;
  SOFTHCA_LOG(debug, "QP %#x: state %u -> %u", qp.qpn, static_cast<u32>(before),
              static_cast<u32>(state));
  qp.state = state;
  switch (state) {
    case QpState::reset: enter_reset(qp); break;
    case QpState::rtr:
      if (before == QpState::init) enter_rtr(qp);
      break;
    case QpState::rts: enter_rts(qp); break;
    case QpState::sqe: flush_send(qp); break;
    case QpState::err:
      if (before != QpState::err) enter_error(qp);
      break;
    default: break;
  }
  qp_wake(qp);
}

void qp_event(Qp &qp, EventType type) {
  qp.async.report(qp.user_handle, type);
  for (size_t i = 0; i < qp.more_async.size(); ++i)
    qp.more_async[i].report(qp.more_user_handles[i], type);
}

void qp_fail(Qp &qp) { qp_set_state(qp, QpState::err); }

void qp_fail(Qp &qp, EventType event) {
  if (qp.state == QpState::err) return;
  qp_fail(qp);
  qp_event(qp, event);
}

}  // namespace softhca
