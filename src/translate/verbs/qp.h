// Queue pairs: creation through both doors, modification, destruction.
#pragma once

#include <infiniband/verbs_exp.h>

#include "base/real.h"
#include "base/result.h"
#include "translate/queue/driven.h"
#include "translate/state/context_state.h"

namespace ibvexp::translate {

Result<ibv_qp *> create_qp(ContextState &state, ibv_context *context, ibv_exp_qp_init_attr *attr);
Result<void> modify_qp(ibv_qp *qp, ibv_exp_qp_attr *attr, std::uint64_t mask);

// ibv_create_qp as programs call it: type numbers of the legacy API come here as
// well, and structures of the legacy size (72 bytes; the head of 64 is what both
// ages share). state is null for a context that cannot be attached.
Result<ibv_qp *> create_base_qp(ContextState *state, ibv_pd *pd, ibv_qp_init_attr *attr);

// ibv_modify_qp() of what a program holds.
int modify_base_qp(ibv_qp *qp, ibv_qp_attr *attr, int mask);

// (legacy <- modern) What ibv_query_qp() says of sizes: what was granted, not what
// rdma-core's queue has. known: what verbs keep about it, or null.
inline void show_grants(const QpNotes *known, ibv_qp_attr &attr, ibv_qp_init_attr &init) {
  if (known == nullptr || known->granted.max_send_wr == 0) [[likely]]
    return;
  init.cap.max_send_wr = known->granted.max_send_wr;
  init.cap.max_inline_data = known->granted.max_inline_data;
  attr.cap = init.cap;
}

// Returns what ibv_destroy_qp() returns. front: what stands before it.
int destroy_any(ContextState *state, queue::QpFront *front, ibv_qp *qp);
[[gnu::always_inline]] inline int destroy_qp(ContextState *state, queue::QpFront *front,
                                             ibv_qp *qp) {
  // Of most there is nothing but the front.
  if (front == nullptr || front->own.known != &front->own.notes || front->own.special ||
      state->has_domain_shares) [[unlikely]]
    return destroy_any(state, front, qp);
  if (const int error = real_behind_front().ibv_destroy_qp(qp); error != 0) [[unlikely]]
    return error;
  if (front->own.engine != nullptr) [[likely]]
    queue::remove_driven(*front);
  else queue::give_back(*front);
  return 0;
}
inline int destroy_qp(ContextState *state, ibv_qp *qp) {
  return destroy_qp(state, queue::before(qp), qp);
}

}  // namespace ibvexp::translate
