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
#include "translate/queue/driven.h"
#include "translate/queue/engine/endpoint.h"
#include "translate/queue/fronts.h"
#include "translate/verbs/device.h"
#include "translate/verbs/environment.h"
#include "translate/verbs/firmware.h"
#include "translate/verbs/hca_caps.h"
#include "translate/verbs/tag_matching.h"
#include "translate/verbs/target_events.h"
#include "translate/verbs/xrc_srq.h"

namespace ibvexp::translate {

namespace {

constexpr EntryId creating = EntryId::ibv_exp_create_dct;
constexpr EntryId destroying = EntryId::ibv_exp_destroy_dct;
constexpr EntryId querying = EntryId::ibv_exp_query_dct;
constexpr EntryId arming = EntryId::ibv_exp_arm_dct;

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
  if (is_legacy(attr.srq))
    return invalid(creating, "srq", attr.srq->handle, "an XRC SRQ cannot serve a DCT");
  if (matches_tags(attr.srq) || is_of_strides(attr.srq))
    return unsupported(creating, FeatureId::tm_create_dct, "srq", attr.srq->handle);
  if (const auto asked = ask_device(state); !asked) return asked;
  if (attr.port == 0 || attr.port > state.device().phys_port_cnt)
    return invalid(creating, "port", attr.port, "the device has no such port");
  if (attr.mtu < IBV_MTU_256 || attr.mtu > IBV_MTU_4096)
    return invalid(creating, "mtu", attr.mtu, "not a value of enum ibv_mtu");
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

int destroy_object(mlx5dv_devx_obj *object) {
  return object != nullptr ? positive(mlx5dv_devx_obj_destroy(object)) : 0;
}

bool wants_atomics(const ibv_qp_attr &attr) {
  return (attr.qp_access_flags & IBV_ACCESS_REMOTE_ATOMIC) != 0;
}

// Programs ask for all rights: a device without atomics makes the target without that one.
void do_without_atomics(ibv_qp_attr &attr) {
  log(LogLevel::info, "ibv_exp_create_dct: access_flags 0x%x: the device has no atomics",
      attr.qp_access_flags);
  attr.qp_access_flags &= ~unsigned{IBV_ACCESS_REMOTE_ATOMIC};
}

// By a command, as what can be armed: on the queues that the engine drives, since libmlx5 would not
// know its completions. cq: rdma-core's. Null if the device does not take it, which is not for lack of
// memory.
Result<mlx5dv_devx_obj *> make_by_command(ContextState &state, DcTarget &target, ibv_cq *cq,
                                          bool scatters) {
  const auto is_not_taken = [](Error why) -> Result<mlx5dv_devx_obj *> {
    if (why.code == ENOMEM) return why;
    log(LogLevel::info,
        "ibv_exp_create_dct: CREATE_DCT: %s; the DCT is made by libmlx5 and cannot be armed",
        std::strerror(why.code));
    return nullptr;
  };
  const KeepErrno keep;
  const mlx5dv_srq srq = facts_of(queue::behind(target.handle.srq));
  if ((srq.comp_mask & MLX5DV_SRQ_MASK_SRQN) == 0) return is_not_taken(keep.reason());
  ibv_qp_attr &attr = target.made_with;
  std::uint32_t atomics = 0;
  if (wants_atomics(attr)) {
    const auto mode = target_atomic_mode(state.context);
    if (!mode) return is_not_taken(keep.reason());
    atomics = *mode;
    if (atomics == 0) do_without_atomics(attr);
  }
  target.endpoint = queue::drive_target(state, &target.handle);
  const auto made = make_target(state.context,
                                {.cqn = facts_of(cq).cqn,
                                 .srqn = srq.srqn,
                                 .pdn = facts_of(target.handle.pd).pdn,
                                 .user_index = target.endpoint->user_index(),
                                 .atomic_mode = atomics,
                                 .access_key = target.dc_key,
                                 .scatters = scatters},
                                attr);
  if (!made) {
    target.endpoint.reset();
    return is_not_taken(made.failure());
  }
  target.handle.dct_num = made.value().number;
  return made.value().object;
}

// A parent domain: while it exists, ibv_dealloc_pd() of the domain answers EBUSY. The kernel
// does not count a target made by a command as a user, and the firmware's refusal would be EINVAL.
ibv_pd *keep_in_use(ibv_pd *pd) {
  ibv_parent_domain_init_attr attr{};
  attr.pd = pd;
  return ibv_alloc_parent_domain(pd->context, &attr);
}

Result<void> bring_to_life(ContextState &state, ibv_qp *qp, ibv_qp_attr attr) {
  attr.qp_state = IBV_QPS_INIT;
  auto reached = outcome(real().ibv_modify_qp(qp, &attr, dct_to_init));
  if (reached.error() == EOPNOTSUPP && wants_atomics(attr) &&
      state.device().atomic_cap == IBV_ATOMIC_NONE) {
    do_without_atomics(attr);
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
    QpState *stale = state.qps.find(target.handle.dct_num);
    state.qps.set(target.handle.dct_num, &entry);
    if (stale != nullptr) state.qp_pool.give_back(*stale);
  } catch (...) {
    state.qp_pool.give_back(entry);
    throw;
  }
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
  const CqState *own_cq = find_cq(&state, queue::behind(attr->cq));
  const std::uint32_t scattered =
      attr->inline_size != 0 ? scatter_to_dct(own_cq != nullptr ? own_cq->entry_size : 0) : 0;
  const bool by_engine = joining.receives() == queue::By::engine;
  auto made = std::make_unique<DcTarget>();
  made->dc_key = attr->dc_key;
  made->made_with = to_modern(*attr, global.value());
  made->handle.context = context;
  made->handle.pd = attr->pd;
  made->handle.srq = attr->srq;
  made->handle.cq = attr->cq;
  pthread_mutex_init(&made->handle.mutex, nullptr);
  pthread_cond_init(&made->handle.cond, nullptr);
  Owned<mlx5dv_devx_obj, destroy_object> object;
  Owned<ibv_pd, ibv_dealloc_pd> pd_use;
  if (by_engine && switched_on(Beyond::key_violations)) {
    const auto by_command = make_by_command(state, *made, cq, scattered != 0);
    if (!by_command) return by_command.failure();
    object.reset(by_command.value());
    if (object) {
      pd_use.reset(keep_in_use(attr->pd));
      if (!pd_use) return keep.reason();
    }
  }
  OwnedReal<ibv_qp> qp;
  if (!object) {
    qp.reset(make(context, *attr, cq));
    if (!qp) return keep.reason();
    if (const auto alive = bring_to_life(state, qp.get(), made->made_with); !alive)
      return alive.failure();
    made->handle.handle = qp->handle;
    made->handle.dct_num = qp->qp_num;
    if (by_engine) made->endpoint = queue::drive_target(state, qp.get(), &made->handle);
  }
  made->object = object.get();
  made->pd_use = pd_use.get();
  made->qp = qp.get();

  const MutexGuard guard(state.mutex);
  made->serial = ++state.last_target;
  DcTarget *target = state.targets.add(std::move(made));
  try {
    remember(state, *target);
  } catch (...) {
    const auto gone = state.targets.claim(target);
    target->endpoint.reset();
    state.targets.retire(gone);
    throw;
  }
  if (object.release() != nullptr) state.targets_by_command = true;
  static_cast<void>(pd_use.release());
  static_cast<void>(qp.release());
  attr->inline_size = scattered;
  return &target->handle;
}

Result<void> destroy_dct(ContextState &state, ibv_exp_dct *dct) {
  QpState *entry = nullptr;
  // Removed first: no event may name it any more, and its number may be given out again at once.
  const auto gone = [&] {
    const MutexGuard guard(state.mutex);
    const auto claimed = state.targets.claim(dct);
    if (claimed) {
      entry = state.qps.find(dct->dct_num);
      if (entry != nullptr && entry->dct != dct) entry = nullptr;
      if (entry != nullptr) state.qps.set(dct->dct_num, nullptr);
    }
    return claimed;
  }();
  if (!gone) return invalid(destroying, "dct", 0, "not created here, or destroyed");
  const KeepErrno keep;
  DcTarget &target = *gone;
  const int error =
      target.object != nullptr ? destroy_object(target.object) : real().ibv_destroy_qp(target.qp);
  if (error == 0) {
    if (target.pd_use != nullptr) ibv_dealloc_pd(target.pd_use);
    target.endpoint.reset();
    await_acknowledgements(target);
  }
  const MutexGuard guard(state.mutex);
  if (entry != nullptr) {
    if (error == 0) state.qp_pool.give_back(*entry);
    else state.qps.set(dct->dct_num, entry);
  }
  return state.targets.settle(gone, error);
}

Result<void> query_dct(ContextState &state, ibv_exp_dct *dct, ibv_exp_dct_attr *attr) {
  if (attr == nullptr) return invalid(querying, "attributes", 0, "must not be null");
  if (attr->comp_mask != 0) return invalid(querying, "comp_mask", attr->comp_mask, "unknown bits");
  const DcTarget *target = state.targets.find(dct);
  if (target == nullptr) return invalid(querying, "dct", 0, "not created here, or destroyed");
  const KeepErrno keep;
  ibv_qp_attr modern = target->made_with;
  std::optional<TargetFacts> told;
  const bool by_command = target->object != nullptr;
  if (by_command) {
    modern.qp_state = IBV_QPS_RTR;
    modern.qp_access_flags &=
        IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  } else {
    ibv_qp_init_attr init{};
    if (const auto asked = outcome(real().ibv_query_qp(target->qp, &modern, dct_query, &init));
        !asked)
      return asked;
    modern.ah_attr.grh = target->made_with.ah_attr.grh;
  }
  if (by_command || switched_on(Beyond::dct_query)) {
    const auto asked =
        by_command ? query_target(target->object, dct->dct_num) : query_target(target->qp);
    if (asked) {
      told = asked.value();
      if (!by_command) opened_by(Beyond::dct_query, row(querying).name);
    } else {
      log(LogLevel::warn,
          "ibv_exp_query_dct: QUERY_DCT: %s; state and key violations are not the device's",
          std::strerror(asked.error()));
    }
  }
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

Result<void> arm_dct(ContextState &state, ibv_exp_dct *dct, ibv_exp_arm_attr *attr) {
  if (attr == nullptr) return invalid(arming, "attributes", 0, "must not be null");
  if (attr->comp_mask != 0) return invalid(arming, "comp_mask", attr->comp_mask, "unknown bits");
  DcTarget *const target = state.targets.find(dct);
  if (target == nullptr) return invalid(arming, "dct", 0, "not created here, or destroyed");
  if (target->object == nullptr)
    return unsupported(arming, "dct", dct->dct_num,
                       "needs IBVEXP_ENGINE=own and a device that takes CREATE_DCT");
  const KeepErrno keep;
  const auto armed = arm_target_events(state, *target);
  if (armed.error() == ENOMEM) return armed;
  if (!armed) return unsupported(arming, "dct", dct->dct_num, std::strerror(armed.error()));
  return {};
}

bool find_target_by_command(ContextState &state, const void *queue) {
  bool found = false;
  const MutexGuard guard(state.mutex);
  state.targets.for_each([&](const DcTarget &target) {
    found |= target.object != nullptr && (queue::behind(target.handle.cq) == queue ||
                                          queue::behind(target.handle.srq) == queue);
  });
  return found;
}

}  // namespace ibvexp::translate
