// Shared receive queues as ibv_create_xrc_srq() returns them: larger objects
// with the queue of rdma-core behind them. Every base verb that takes or brings
// a shared receive queue passes here; for other queues it is as if it did not.
#pragma once

#include <infiniband/ofa_verbs.h>

#include "base/real.h"
#include "base/result.h"
#include "translate/queue/driven.h"
#include "translate/state/context_state.h"

namespace ibvexp::translate {

inline bool is_legacy(const ibv_srq *srq) { return srq->handle == LEGACY_XRC_SRQ_HANDLE; }

Result<ibv_srq *> create_xrc_srq(ContextState &state, ibv_pd *pd, ibv_xrc_domain *domain,
                                 ibv_cq *cq, ibv_srq_init_attr *attr);

// rdma-core's queue of either kind, which may be null.
inline ibv_srq *behind_any_kind(ibv_srq *srq) {
  ibv_srq *const back = queue::behind(srq);
  if (back == nullptr || !is_legacy(back)) [[likely]]
    return back;
  return queue::behind(static_cast<ibv_srq *>(reinterpret_cast<ibv_srq_legacy *>(back)->ibv_srq));
}

// What the base verb of that name returns.
int destroy_any(ContextState *state, queue::SrqFront *front, ibv_srq *srq);
[[gnu::always_inline]] inline int destroy_srq(ContextState *state, queue::SrqFront *front,
                                              ibv_srq *srq) {
  // Of most there is nothing but the front.
  if (front == nullptr || front->own.strides != nullptr || state->has_dependents()) [[unlikely]]
    return destroy_any(state, front, srq);
  if (const int error = real_behind_front().ibv_destroy_srq(srq); error != 0) [[unlikely]]
    return error;
  queue::remove(*front);
  return 0;
}

// An event of a shared receive queue without a front names rdma-core's: what the program knows
// instead.
void show_srq(ContextState &state, ibv_async_event &event);

}  // namespace ibvexp::translate
