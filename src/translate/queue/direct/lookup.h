// From the object that a family function is called with to the queue behind it.
// Such an object is known to be ours: nothing is checked.
#pragma once

#include "translate/queue/direct/queue.h"
#include "translate/state/context_state.h"

namespace ibvexp::direct {

inline const Context &known_context(const ibv_context *context) {
  const auto *words = reinterpret_cast<const ibvexp_context_words *>(context) - 1;
  const auto table_end = reinterpret_cast<std::uintptr_t>(context) + sizeof(*context) - words->sz;
  const auto *state =
      reinterpret_cast<const ContextState *>(table_end - sizeof(verbs_context_exp)) - 1;
  return *state->direct;
}

inline Endpoint &known_endpoint(const ibv_qp *qp) {
  return *known_context(qp->context).queue_pairs.find(qp->qp_num);
}

inline CompletionQueue &known_cq(const ibv_cq *cq) {
  return *known_context(cq->context).cqs.find(cq->handle);
}

// A lock that is not taken where one thread uses the object.
template <bool locked>
struct MaybeGuard {
  explicit MaybeGuard(SpinLock &lock) : lock_(lock) {
    if constexpr (locked) lock_.lock();
  }
  ~MaybeGuard() {
    if constexpr (locked) lock_.unlock();
  }
  MaybeGuard(const MaybeGuard &) = delete;
  MaybeGuard &operator=(const MaybeGuard &) = delete;

 private:
  SpinLock &lock_;
};

}  // namespace ibvexp::direct
