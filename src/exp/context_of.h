// The context of any object that an entry point takes first.
#pragma once

#include <infiniband/peer_ops.h>
#include <infiniband/verbs_exp.h>

#include <concepts>

#include "translate/verbs/xrc.h"

namespace ibvexp {

inline ibv_context *context_of(ibv_context *context) { return context; }

// qp, cq, mr, pd, srq, dct, wq, indirection table, dm, flow, key list.
template <class Object>
requires requires(Object *object) {
  { object->context } -> std::convertible_to<ibv_context *>;
}
ibv_context *context_of(Object *object) { return object->context; }

// Requests and objects that name a protection domain instead. Not rdma_cm_id,
// whose context is the caller's.
template <class Object>
requires(
    !requires(Object * object) { object->context; } &&
    requires(Object * object) { object->pd->context; }) ibv_context *context_of(Object *object) {
  return object->pd != nullptr ? object->pd->context : nullptr;
}

// Looked up, not read: a domain that has been closed is freed.
inline ibv_context *context_of(ibv_xrc_domain *domain) {
  return translate::context_of_domain(domain);
}

inline ibv_context *context_of(ibv_exp_mw_bind *bind) {
  return bind->mw != nullptr ? bind->mw->context : nullptr;
}

}  // namespace ibvexp
