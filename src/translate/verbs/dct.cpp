#include "translate/verbs/dct.h"

#include <cstring>
#include <optional>

#include "base/keep_errno.h"
#include "base/log.h"
#include "base/owned.h"
#include "base/real.h"
#include "table/options.h"
#include "trace/diagnose.h"
#include "translate/convert/dct_convert.h"
#include "translate/queue/fronts.h"
#include "translate/verbs/device.h"
#include "translate/verbs/firmware.h"
#include "translate/verbs/scatter.h"
#include "translate/verbs/tag_matching.h"
#include "translate/verbs/xrc_srq.h"

namespace ibvexp::translate {

namespace {

constexpr EntryId creating = EntryId::ibv_exp_create_dct;
constexpr EntryId destroying = EntryId::ibv_exp_destroy_dct;
constexpr EntryId querying = EntryId::ibv_exp_query_dct;

template <class Object>
Result<void> check_object(const ibv_context *context, const char *field, const Object *object) {
  if (object == nullptr) return invalid(creating, field, 0, "must not be null");
  if (object->context != context) return invalid(creating, field, 0, "of another context");
  return {};
}

Result<void> check(ContextState &state, const ibv_exp_dct_init_attr &attr) {
  if (attr.comp_mask != 0) return invalid(creating, "comp_mask", attr.comp_mask, "unknown bits");
  if (const auto flags = check_bits(creating, "create_flags", attr.create_flags,
                                    bits_of<"ibv_exp_dct_create_flags">());
      !flags)
    return flags;
  if (const auto pd = check_object(state.context, "pd", attr.pd); !pd) return pd;
  // Fronts of destroyed objects have nothing behind them.
  if (const auto cq = check_object(state.context, "cq", queue::behind(attr.cq)); !cq) return cq;
  if (const auto srq = check_object(state.context, "srq", queue::behind(attr.srq)); !srq)
    return srq;
  if (is_legacy(attr.srq)) return invalid(creating, "srq", attr.srq->handle, "a queue of XRC");
  if (matches_tags(attr.srq))
    return unsupported(creating, FeatureId::tm_create_dct, "srq", attr.srq->handle);
  if (const auto asked = ask_device(state); !asked) return asked;
  if (attr.port == 0 || attr.port > state.device().phys_port_cnt)
    return invalid(creating, "port", attr.port, "no such port");
  if (attr.mtu < IBV_MTU_256 || attr.mtu > IBV_MTU_4096)
    return invalid(creating, "mtu", attr.mtu, "no such size");
  if (!mlx5dv_is_supported(state.context->device))
    return unsupported(creating, "device", 0, "DC needs an mlx5 device");
  return {};
}

// On InfiniBand programs leave the index at -1 when they have no GID to name.
Result<bool> names_gid(ibv_context *context, const ibv_exp_dct_init_attr &attr) {
  ibv_port_attr port{};
  if (const auto asked = outcome(ibv_query_port(context, attr.port, &port)); !asked)
    return asked.failure();
  return port.link_layer == IBV_LINK_LAYER_ETHERNET || attr.gid_index < port.gid_tbl_len;
}

ibv_qp *make(ibv_context *context, const ibv_exp_dct_init_attr &attr, ibv_cq *cq) {
  ibv_qp_init_attr_ex modern{};
  modern.qp_type = IBV_QPT_DRIVER;
  modern.send_cq = modern.recv_cq = cq;
  modern.srq = queue::behind(attr.srq);
  modern.comp_mask = IBV_QP_INIT_ATTR_PD;
  modern.pd = attr.pd;
  mlx5dv_qp_init_attr dv{};
  dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
  dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
  dv.dc_init_attr.dct_access_key = attr.dc_key;
  if (attr.inline_size == 0) {
    dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
    dv.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE;
  }
  return real().mlx5dv_create_qp(context, &modern, &dv);
}

int destroy_real(ibv_qp *qp) { return real().ibv_destroy_qp(qp); }

Result<void> bring_to_life(ContextState &state, ibv_qp *qp, ibv_qp_attr attr) {
  attr.qp_state = IBV_QPS_INIT;
  auto reached = outcome(real().ibv_modify_qp(qp, &attr, dct_to_init));
  // Rights that nobody can use are no reason to have no target: programs ask for
  // all of them.
  if (reached.error() == EOPNOTSUPP && (attr.qp_access_flags & IBV_ACCESS_REMOTE_ATOMIC) != 0 &&
      state.device().atomic_cap == IBV_ATOMIC_NONE) {
    log(LogLevel::info, "ibv_exp_create_dct: access_flags 0x%x: the device has no atomics",
        attr.qp_access_flags);
    attr.qp_access_flags &= ~unsigned{IBV_ACCESS_REMOTE_ATOMIC};
    reached = outcome(real().ibv_modify_qp(qp, &attr, dct_to_init));
  }
  if (!reached) return reached;
  attr.qp_state = IBV_QPS_RTR;
  return outcome(real().ibv_modify_qp(qp, &attr, dct_to_rtr));
}

// Completions carry the target's number, which is one of queue pairs.
void remember(ContextState &state, DcTarget &target) {
  QpState &entry = state.qp_pool.take();
  entry.dct = &target.handle;
  entry.srq = target.handle.srq;
  entry.recv_cq = queue::behind(target.handle.cq);
  entry.raw = false;
  try {
    QpState *stale = state.qps.find(target.qp->qp_num);
    state.qps.set(target.qp->qp_num, &entry);
    if (stale != nullptr) state.qp_pool.give_back(*stale);
  } catch (...) {
    state.qp_pool.give_back(entry);
    throw;
  }
}

const DcTarget *find(ContextState &state, const ibv_exp_dct *dct) {
  const MutexGuard guard(state.mutex);
  return state.targets.find(dct);
}

}  // namespace

Result<ibv_exp_dct *> create_dct(ContextState &state, ibv_context *context,
                                 ibv_exp_dct_init_attr *attr) {
  if (attr == nullptr) return invalid(creating, "attributes", 0, "must not be null");
  const KeepErrno keep;
  if (const auto checked = check(state, *attr); !checked) return checked.failure();
  const auto global = names_gid(context, *attr);
  if (!global) return global.failure();

  ibv_cq *cq = queue::behind(attr->cq);
  const queue::Joining joining(state, &cq, queue::behind(attr->srq), queue::By::engine);
  if (!joining) return joining.failure();
  auto made = std::make_unique<DcTarget>();
  Owned<ibv_qp, destroy_real> qp(make(context, *attr, cq));
  if (!qp) return keep.reason();
  const ibv_qp_attr modern = to_modern(*attr, global.value());
  if (const auto alive = bring_to_life(state, qp.get(), modern); !alive) return alive.failure();

  made->qp = qp.get();
  made->dc_key = attr->dc_key;
  made->route = modern.ah_attr.grh;
  made->handle.context = context;
  made->handle.handle = qp->handle;
  made->handle.dct_num = qp->qp_num;
  made->handle.pd = attr->pd;
  made->handle.srq = attr->srq;
  made->handle.cq = attr->cq;
  pthread_mutex_init(&made->handle.mutex, nullptr);
  pthread_cond_init(&made->handle.cond, nullptr);
  if (joining.receives() == queue::By::engine)
    made->endpoint = queue::drive_target(state, qp.get(), &made->handle);

  const MutexGuard guard(state.mutex);
  DcTarget *target = state.targets.add(std::move(made));
  try {
    remember(state, *target);
  } catch (...) {
    state.targets.take(&target->handle);
    throw;
  }
  static_cast<void>(qp.release());
  if (attr->inline_size != 0) {
    const CqState *own = find_cq(&state, queue::behind(attr->cq));
    attr->inline_size = scatter_to_dct(own != nullptr ? own->entry_size : 0);
  }
  return &target->handle;
}

Result<void> destroy_dct(ContextState &state, ibv_exp_dct *dct) {
  Handles<DcTarget>::Node gone;
  QpState *entry = nullptr;
  {
    // Out first: of two threads that free it one finds nothing, and the number may
    // be given out again at once.
    const MutexGuard guard(state.mutex);
    gone = state.targets.take(dct);
    if (gone) {
      entry = state.qps.find(dct->dct_num);
      if (entry != nullptr && entry->dct != dct) entry = nullptr;
      if (entry != nullptr) state.qps.set(dct->dct_num, nullptr);
    }
  }
  if (!gone) return invalid(destroying, "dct", 0, "not created here, or destroyed");
  const KeepErrno keep;
  const int error = destroy_real(gone.mapped()->qp);
  if (error == 0) gone.mapped()->endpoint.reset();
  if (entry != nullptr) {
    const MutexGuard guard(state.mutex);
    if (error == 0) state.qp_pool.give_back(*entry);
    else state.qps.set(dct->dct_num, entry);
  }
  return state.settle(state.targets, std::move(gone), error);
}

Result<void> query_dct(ContextState &state, ibv_exp_dct *dct, ibv_exp_dct_attr *attr) {
  if (attr == nullptr) return invalid(querying, "attributes", 0, "must not be null");
  if (attr->comp_mask != 0) return invalid(querying, "comp_mask", attr->comp_mask, "unknown bits");
  const DcTarget *target = find(state, dct);
  if (target == nullptr) return invalid(querying, "dct", 0, "not created here, or destroyed");
  const KeepErrno keep;
  ibv_qp_attr modern{};
  ibv_qp_init_attr init{};
  if (const auto asked = outcome(real().ibv_query_qp(target->qp, &modern, dct_query, &init));
      !asked)
    return asked;
  std::optional<TargetFacts> told;
  if (switched_on(Beyond::dct_query)) {
    if (const auto asked = query_target(target->qp)) {
      told = asked.value();
      opened_by(Beyond::dct_query, row(querying).name);
    } else {
      log(LogLevel::warn, "ibv_exp_query_dct: key_violations: the device does not tell: %s",
          std::strerror(asked.error()));
    }
  }
  modern.ah_attr.grh = target->route;
  to_legacy(modern, *attr);
  attr->dc_key = target->dc_key;
  attr->key_violations = 0;
  if (told) {
    attr->dc_key = told->access_key;
    attr->key_violations = told->violations;
    attr->state = told->state;
  }
  attr->srq = dct->srq;
  attr->cq = dct->cq;
  attr->pd = dct->pd;
  return {};
}

}  // namespace ibvexp::translate
