// How queues come under our own data path, and leave it.
//
// A completion queue changes hands together with every send and receive queue
// that completes on it, or not at all: either libmlx5 or we count. The two sides
// of a queue pair may be in different hands. It has to happen before the first
// request is posted, since what libmlx5 remembers of posted ones is private to
// it. Queues that are created later on such a completion queue follow it.
#pragma once

#include "base/result.h"
#include "translate/queue/direct/queue.h"

namespace ibvexp {
struct ContextState;
namespace translate {
struct WorkQueue;
}
}  // namespace ibvexp

namespace ibvexp::direct {

// EINVAL: something on the queue cannot change hands. EBUSY: requests have been
// posted already. Logged. May throw bad_alloc; nothing has changed then, nor
// when it fails.
Result<CompletionQueue *> own(ContextState &state, ibv_cq *cq);

// A new queue pair: takes over the sides whose completion queues are ours.
Result<void> adopt(ContextState &state, ibv_qp *qp);

// A new work queue, as above.
Result<void> adopt(ContextState &state, translate::WorkQueue &wq);

// A work queue was brought into another state, or is gone.
void after_modify(ContextState &state, translate::WorkQueue &wq) noexcept;
void forget(ContextState &state, translate::WorkQueue &wq) noexcept;

// A queue pair is gone; only its address and number are looked at.
void forget(ContextState &state, const ibv_qp *qp, std::uint32_t number) noexcept;

// A queue pair was brought into another state.
void after_modify(ContextState &state, ibv_qp *qp, ibv_qp_state to) noexcept;

// A completion queue is gone; only its address and handle are looked at.
void forget_cq(ContextState &state, const ibv_cq *cq, std::uint32_t handle) noexcept;

// Whether a completion queue is ours. state may be null.
bool is_owned(const ContextState *state, const ibv_cq *cq) noexcept;

// An event of the queue was read: the next request for one has another number.
void count_event(const ContextState *state, const ibv_cq *cq) noexcept;

// Puts the functions of dispatch.h in front of the provider's.
Context &need_context(ContextState &state);

}  // namespace ibvexp::direct
