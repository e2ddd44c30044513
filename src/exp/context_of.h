// The context of any object that an entry point takes first.
#pragma once

#include <infiniband/ofa_verbs.h>
#include <infiniband/peer_ops.h>
#include <infiniband/verbs_exp.h>

#include <concepts>

namespace ibvexp {

inline ibv_context *context_of(ibv_context *context) { return context; }

// qp, cq, mr, pd, srq, dct, wq, indirection table, dm, flow, key list. Not a domain of XRC: once
// closed it is freed memory, and verbs look it up.
template <class Object>
requires(!std::same_as<Object, ibv_xrc_domain> && requires(Object * object) {
  { object->context } -> std::convertible_to<ibv_context *>;
}) ibv_context *context_of(Object *object) {
  return object->context;
}

// Requests and objects that name a protection domain instead. Not rdma_cm_id,
// whose context is the caller's.
template <class Object>
requires(
    !requires(Object * object) { object->context; } &&
    requires(Object * object) { object->pd->context; }) ibv_context *context_of(Object *object) {
  return object->pd != nullptr ? object->pd->context : nullptr;
}

inline ibv_context *context_of(ibv_exp_mw_bind *bind) {
  return bind->mw != nullptr ? bind->mw->context : nullptr;
}

}  // namespace ibvexp
