#include "translate/verbs/intf.h"

#include <infiniband/mlx5dv.h>

#include <cerrno>

#include "base/keep_errno.h"
#include "trace/diagnose.h"
#include "translate/queue/faces.h"
#include "translate/queue/front.h"
#include "translate/state/context_state.h"
#include "translate/verbs/wq.h"

namespace ibvexp::translate {

namespace {

constexpr EntryId querying = EntryId::ibv_exp_query_intf;
constexpr EntryId releasing = EntryId::ibv_exp_release_intf;

struct Refusal {
  ibv_exp_query_intf_status status;
  int error;
};

Refusal refuse(ibv_exp_query_intf_status status, const char *field, std::uint64_t value,
               const char *why) {
  return {status, invalid(querying, field, value, why).code};
}

// ENOTSUP, for what a row of the tables refuses.
Refusal refuse(ibv_exp_query_intf_status status, FeatureId feature, const char *field,
               std::uint64_t value) {
  return {status, unsupported(querying, feature, field, value).code};
}

constexpr Refusal fine{IBV_EXP_INTF_STAT_OK, 0};

Refusal check_family_flags(const ibv_exp_query_intf_params &params) {
  std::uint32_t flags = params.family_flags;
  if (params.intf == IBV_EXP_INTF_QP_BURST) {
    if ((flags & IBV_EXP_QP_BURST_CREATE_DISABLE_ETH_LOOPBACK) != 0)
      return refuse(IBV_EXP_INTF_STAT_FAMILY_FLAGS_NOT_SUPPORTED,
                    FeatureId::IBV_EXP_QP_BURST_CREATE_DISABLE_ETH_LOOPBACK, "family_flags", flags);
    // A hint: entries of one packet each are as good.
    flags &= ~std::uint32_t{IBV_EXP_QP_BURST_CREATE_ENABLE_MULTI_PACKET_SEND_WR};
  }
  if (flags != 0)
    return refuse(IBV_EXP_INTF_STAT_FAMILY_FLAGS_NOT_SUPPORTED, "family_flags", flags,
                  "unknown bits");
  return fine;
}

Refusal check(const ibv_context *context, const ibv_exp_query_intf_params *params) {
  if (params == nullptr)
    return refuse(IBV_EXP_INTF_STAT_INVAL_PARARM, "params", 0, "must not be null");
  if (params->comp_mask != 0)
    return refuse(IBV_EXP_INTF_STAT_INVAL_PARARM, "comp_mask", params->comp_mask, "unknown bits");
  if (params->intf_scope != IBV_EXP_INTF_GLOBAL)
    ignored(querying, "intf_scope", static_cast<unsigned>(params->intf_scope),
            "all families are global");
  if (params->intf >= IBV_EXP_INTF_RESERVED)
    return refuse(IBV_EXP_INTF_STAT_INTF_NOT_SUPPORTED, "intf", params->intf,
                  "not a value of enum ibv_exp_intf_family");
  const std::uint32_t last_version = params->intf == IBV_EXP_INTF_WQ ? 0 : 1;
  if (params->intf_version > last_version)
    return refuse(IBV_EXP_INTF_STAT_VERSION_NOT_SUPPORTED, "intf_version", params->intf_version,
                  "no such version of the family");
  if ((params->flags & ~std::uint32_t{IBV_EXP_QUERY_INTF_FLAG_ENABLE_CHECKS}) != 0)
    return refuse(IBV_EXP_INTF_STAT_FLAGS_NOT_SUPPORTED, "flags", params->flags, "unknown bits");
  if (const Refusal flags = check_family_flags(*params); flags.error != 0) return flags;
  if (params->obj == nullptr)
    return refuse(IBV_EXP_INTF_STAT_INVAL_OBJ, "obj", 0, "must not be null");
  if (!mlx5dv_is_supported(context->device))
    return refuse(IBV_EXP_INTF_STAT_INTF_NOT_SUPPORTED, "intf", params->intf,
                  "needs an mlx5 device");
  return fine;
}

// The object is on rdma-core's data path.
Refusal no_engine(const ibv_exp_query_intf_params &params) {
  return {IBV_EXP_INTF_STAT_INTF_NOT_SUPPORTED,
          unsupported(querying, "intf", params.intf,
                      "the object is on rdma-core's data path, which has no interface families")
              .code};
}

// What a program passes as object may be anything: it is not looked into unless its
// address is that of one. Objects that were made past this library are not known.
template <class Front>
Front *find_front(const ContextState &state, const void *object) {
  auto *const front = queue::find_front<Front>(object);
  return front != nullptr && front->shown.context == state.context ? front : nullptr;
}

Refusal query_qp(ContextState &state, const ibv_exp_query_intf_params &params, bool checked,
                 void *&family) {
  const auto *const front = find_front<queue::QpFront>(state, params.obj);
  if (front == nullptr)
    return refuse(IBV_EXP_INTF_STAT_INVAL_OBJ, "obj", 0, "not a queue pair of this context");
  const ibv_qp *const qp = front->own.back;
  if (qp->state < IBV_QPS_INIT || qp->state > IBV_QPS_RTS)
    return refuse(IBV_EXP_INTF_STAT_INVAL_OBJ_STATE, "obj: state", qp->state,
                  "must be INIT, RTR or RTS");
  // The status is the legacy provider's.
  if (qp->qp_type != IBV_QPT_RC && qp->qp_type != IBV_QPT_UC && qp->qp_type != IBV_QPT_RAW_PACKET)
    return refuse(IBV_EXP_INTF_STAT_INVAL_PARARM, "obj: qp_type", qp->qp_type,
                  "the family is for RC, UC and RAW_PACKET");
  if (front->own.send == nullptr || front->own.receive == nullptr) return no_engine(params);
  if (qp->srq != nullptr)
    return refuse(IBV_EXP_INTF_STAT_INVAL_OBJ, "obj: srq", 0, "it receives from an SRQ");
  family = const_cast<ibv_exp_qp_burst_family_v1 *>(
      queue::burst_face({.frames = qp->qp_type == IBV_QPT_RAW_PACKET, .checked = checked}));
  return fine;
}

Refusal query_cq(ContextState &state, const ibv_exp_query_intf_params &params, bool checked,
                 void *&family) {
  auto *const front = find_front<queue::CqFront>(state, params.obj);
  if (front == nullptr)
    return refuse(IBV_EXP_INTF_STAT_INVAL_OBJ, "obj", 0, "not a completion queue of this context");
  if (front->own.engine == nullptr) return no_engine(params);
  front->own.plain = false;  // it stays the engine's
  family = const_cast<ibv_exp_cq_family_v1 *>(queue::cq_face({.checked = checked}));
  return fine;
}

Refusal query_wq(ContextState &state, const ibv_exp_query_intf_params &params, bool checked,
                 void *&family) {
  const WorkQueue *wq = state.work_queues.find(queue::behind_any<ibv_exp_wq>(params.obj));
  if (wq == nullptr)
    return refuse(IBV_EXP_INTF_STAT_INVAL_OBJ, "obj", 0, "not a work queue of this context");
  if (wq->front == nullptr || wq->front->own.engine == nullptr) return no_engine(params);
  family = const_cast<ibv_exp_wq_family *>(queue::wq_face({.checked = checked}));
  return fine;
}

Refusal query(ContextState &state, const ibv_exp_query_intf_params *params, void *&family) {
  if (const Refusal checked = check(state.context, params); checked.error != 0) return checked;
  if (state.driver == nullptr) return no_engine(*params);
  const bool with_checks = (params->flags & IBV_EXP_QUERY_INTF_FLAG_ENABLE_CHECKS) != 0;
  const Refusal outcome = [&] {
    switch (params->intf) {
      case IBV_EXP_INTF_QP_BURST: return query_qp(state, *params, with_checks, family);
      case IBV_EXP_INTF_CQ: return query_cq(state, *params, with_checks, family);
      default: return query_wq(state, *params, with_checks, family);
    }
  }();
  if (family != nullptr) {
    const MutexGuard guard(state.mutex);
    ++state.families[family];
  }
  return outcome;
}

}  // namespace

Result<void *> query_intf(ContextState &state, ibv_context *, ibv_exp_query_intf_params *params,
                          ibv_exp_query_intf_status *status) {
  const KeepErrno keep;
  void *family = nullptr;
  const Refusal outcome = query(state, params, family);
  if (status != nullptr) *status = outcome.status;
  if (outcome.error != 0) return Error{outcome.error};
  return family;
}

Result<void> release_intf(ContextState &state, ibv_context *, void *intf,
                          ibv_exp_release_intf_params *params) {
  if (params != nullptr && params->comp_mask != 0)
    return invalid(releasing, "comp_mask", params->comp_mask, "unknown bits");
  // Programs release what they never obtained.
  if (intf == nullptr) return {};
  // The tables are constant: all there is of an obtained one is that it was.
  const MutexGuard guard(state.mutex);
  const auto held = state.families.find(intf);
  if (held == state.families.end())
    return invalid(releasing, "intf", 0, "not obtained in this context, or released");
  if (--held->second == 0) state.families.erase(held);
  return {};
}

}  // namespace ibvexp::translate
