// Completion queues.
#pragma once

#include <infiniband/verbs_exp.h>

#include "base/real.h"
#include "base/result.h"
#include "translate/queue/driven.h"
#include "translate/state/context_state.h"

namespace ibvexp::translate {

// By name.
Result<ibv_cq *> create_cq(ContextState &state, ibv_context *context, int cqe, void *cq_context,
                           ibv_comp_channel *channel, int comp_vector, ibv_exp_cq_init_attr *attr);

// Through the table: the caller holds context->mutex, stores the cq_context
// itself and counts the channel's reference once more.
Result<ibv_cq *> create_cq(ContextState &state, ibv_context *context, int cqe,
                           ibv_comp_channel *channel, int comp_vector, ibv_exp_cq_init_attr *attr);

Result<void> modify_cq(ContextState &state, ibv_cq *cq, ibv_exp_cq_attr *attr, int mask);

// ibv_create_cq(). state is null for a context that cannot be attached.
Result<ibv_cq *> create_base_cq(ContextState *state, ibv_context *context, int cqe,
                                void *cq_context, ibv_comp_channel *channel, int comp_vector);

// What ibv_resize_cq() returns.
int resize_cq(ibv_cq *cq, int cqe);

// Returns what ibv_destroy_cq() returns. state is null for a context that cannot
// be attached; front: what stands before it.
int destroy_any(ContextState *state, queue::CqFront *front, ibv_cq *cq);
[[gnu::always_inline]] inline int destroy_cq(ContextState *state, queue::CqFront *front,
                                             ibv_cq *cq) {
  // Of most there is nothing but the front.
  if (front == nullptr || front->own.beside != nullptr || cq->channel != nullptr ||
      state->has_dependents() || find_cq(state, cq) != nullptr) [[unlikely]]
    return destroy_any(state, front, cq);
  if (const int error = real_behind_front().ibv_destroy_cq(cq); error != 0) [[unlikely]]
    return error;
  queue::remove(*front);
  return 0;
}
inline int destroy_cq(ContextState *state, ibv_cq *cq) {
  return destroy_cq(state, queue::before(cq), cq);
}

}  // namespace ibvexp::translate
