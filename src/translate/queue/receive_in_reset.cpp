#include "translate/queue/receive_in_reset.h"

#include "base/log.h"
#include "translate/queue/operation.h"

#include <cerrno>
#include <new>

namespace ibvexp::translate {

namespace {

int keep(ContextState &state, QpState &known, ibv_recv_wr *wr, ibv_recv_wr **bad_wr) noexcept {
  ibv_recv_wr *bad = wr;
  int error;
  try {
    const MutexGuard guard(state.mutex);
    error = known.early.keep(known.granted, wr, bad);
  } catch (const std::bad_alloc &) {
    error = ENOMEM;
  }
  if (error != 0 && bad_wr != nullptr) *bad_wr = bad;
  return error;
}

// In the context's operations while a queue pair is in RESET.
int post_recv(ibv_qp *qp, ibv_recv_wr *wr, ibv_recv_wr **bad_wr) {
  ContextState *state = find_state(qp->context);
  if (state == nullptr) [[unlikely]]
    return EINVAL;  // being closed
  if (qp->state == IBV_QPS_RESET) [[unlikely]] {
    QpState *known = find_qp(state, qp);
    if (known != nullptr && known->in_reset) return keep(*state, *known, wr, bad_wr);
  }
  return state->post_recv.load(std::memory_order_relaxed)(qp, wr, bad_wr);
}

// Only if we see modify_qp: otherwise receives kept in RESET would never be posted.
bool takes_receives(const ContextState &state, const QpState &known) {
  return state.sees_base_verbs && known.srq == nullptr && known.recv_cq != nullptr &&
         known.granted.max_recv_wr != 0;
}

}  // namespace

void enter_reset(ContextState &state, QpState &known) noexcept {
  if (known.in_reset || !takes_receives(state, known)) return;
  known.in_reset = true;
  if (state.in_reset++ == 0) replace(state.operations().post_recv, &post_recv);
}

void leave_reset(ContextState &state, QpState &known) noexcept {
  known.early = {};
  if (!known.in_reset) return;
  known.in_reset = false;
  if (--state.in_reset == 0)
    replace(state.operations().post_recv, state.post_recv.load(std::memory_order_relaxed));
}

void after_reset(ContextState &state, QpState &known, ibv_qp *qp, ibv_qp_state now) noexcept {
  EarlyReceives early;
  {
    const MutexGuard guard(state.mutex);
    if (now == IBV_QPS_RESET) {
      known.early = {};
      return enter_reset(state, known);
    }
    if (!known.in_reset) return;
    early = std::move(known.early);
    leave_reset(state, known);
  }
  if (early.empty()) return;
  ibv_recv_wr *bad = nullptr;
  const int error = state.post_recv.load(std::memory_order_relaxed)(qp, early.chain(), &bad);
  if (error != 0)
    log(LogLevel::error, "QP %#x: receives posted before INIT are lost: errno %d", qp->qp_num,
        error);
}

}  // namespace ibvexp::translate
