#include "translate/verbs/qp.h"

#include <algorithm>
#include <cerrno>
#include <memory>

#include "base/keep_errno.h"
#include "base/owned.h"
#include "base/real.h"
#include "table/feature_rows.h"
#include "table/options.h"
#include "trace/diagnose.h"
#include "translate/convert/legacy_grants.h"
#include "translate/convert/qp_convert.h"
#include "translate/convert/room.h"
#include "translate/queue/fronts.h"
#include "translate/queue/native/builders.h"
#include "translate/verbs/cross_channel.h"
#include "translate/verbs/device.h"
#include "translate/verbs/environment.h"
#include "translate/verbs/qp_check.h"
#include "translate/verbs/qp_make.h"
#include "translate/verbs/res_domain.h"
#include "translate/verbs/stride_queue.h"
#include "translate/verbs/xrc_srq.h"

namespace ibvexp::translate {

namespace {

using queue::By;

constexpr EntryId creating = EntryId::ibv_exp_create_qp;
constexpr std::uint32_t inline_limit = 1u << 16;  // any device's entries are smaller

int destroy_real(ibv_qp *qp) {
  queue::QpFront *const front = queue::before(qp);
  const int error = real().ibv_destroy_qp(qp);
  if (error == 0) queue::remove(front);
  return error;
}

// For rdma-core's data path. Throws bad_alloc.
void enter(ContextState &state, ibv_qp *qp, const ModernQpInit &modern, const QpNotes &notes) {
  const bool atomics = state.device().atomic_cap != IBV_ATOMIC_NONE;
  const MutexGuard guard(state.mutex);
  QpState &entry = state.qp_pool.take();
  static_cast<QpNotes &>(entry) = notes;
  entry.max_inline_data =
      std::min(modern.attr.cap.max_inline_data, largest_inline_data(qp->qp_type));
  entry.atomics = atomics;
  entry.srq = queue::shown(qp->srq);
  entry.recv_cq = qp->recv_cq;
  entry.raw = qp->qp_type == IBV_QPT_RAW_PACKET && qp->recv_cq != nullptr;
  entry.checksums = (state.device().device_cap_flags & IBV_DEVICE_RAW_IP_CSUM) != 0;
  entry.max_tso_header = modern.attr.max_tso_header;
  entry.qp.store(qp, std::memory_order_relaxed);
  entry.shown.store(queue::shown(qp), std::memory_order_relaxed);
  try {
    if (modern.builders) native::open(state, entry, qp, modern);
    if (entry.raw) need_cq(state, entry.recv_cq).add_raw(queue::shown(qp));
    // A number that is taken was freed without our seeing it: its state goes back.
    QpState *stale = state.qps.find(qp->qp_num);
    state.qps.set(qp->qp_num, &entry);
    if (queue::QpFront *front = queue::before(qp)) front->own.known = &entry;
    if (stale != nullptr) state.qp_pool.give_back(*stale);
  } catch (...) {
    if (entry.raw) need_cq(state, entry.recv_cq).remove_raw(queue::shown(qp));
    state.qp_pool.give_back(entry);
    throw;
  }
}

void note(QpNotes &notes, const ibv_qp_cap &granted, bool as_legacy, bool windows) {
  if (as_legacy) notes.granted = granted;
  notes.no_windows = !windows;
}

// shown: what the program holds. as_legacy: was granted more than rdma-core knows of. Throws
// bad_alloc.
void remember(ContextState &state, ibv_qp *qp, const ibv_qp *shown, const ModernQpInit &modern,
              bool as_legacy, bool windows) {
  queue::QpFront *const front = queue::front_of(shown);
  if (front != nullptr && qp->qp_type == IBV_QPT_DRIVER) front->own.special = true;
  if (front == nullptr || front->own.send == nullptr || front->own.receive == nullptr) {
    QpNotes notes;
    note(notes, modern.attr.cap, as_legacy, windows);
    return enter(state, qp, modern, notes);
  }
  note(front->own.notes, modern.attr.cap, as_legacy, windows);
  front->own.known = &front->own.notes;
}

// Bytes that the device may put into a receive completion. The kernel decides by
// the size of the CQE, which a program can double.
std::uint32_t granted_inline_receive(ContextState &state, const ibv_qp *qp,
                                     const ModernQpInit &modern) {
  if ((modern.dv.create_flags & MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE) != 0) return 0;
  if (qp->recv_cq == nullptr || !mlx5dv_is_supported(qp->context->device)) return 0;
  if (qp->qp_type != IBV_QPT_RC && qp->qp_type != IBV_QPT_UC) return 0;
  const std::uint32_t usual = scatter_to_connected();
  const CqState *own = find_cq(&state, qp->recv_cq);
  if (usual != 0 && own != nullptr && own->entry_size != 0) return own->entry_size / 2;
  return usual;
}

// The largest key change that a request announces.
std::uint32_t key_change_bytes(const ibv_exp_qp_init_attr &attr) {
  if ((attr.comp_mask & IBV_EXP_QP_INIT_ATTR_MAX_INL_KLMS) == 0) return 0;
  if (attr.max_inl_send_klms == 0) return 0;
  // One more for the header of a pattern, as far as there is room.
  const std::uint32_t entries = std::min(attr.max_inl_send_klms + 1, most_inline_entries);
  return umr_bytes(to_modern_type(attr.qp_type), entries);
}

// Sizes of an entry. The argument of an atomic stays what was asked: its limit is checked
// when a request is posted.
LegacyExtra extra_of(const ibv_exp_qp_init_attr &attr) {
  const auto has = [&](ibv_exp_qp_init_attr_comp_mask bit) { return (attr.comp_mask & bit) != 0; };
  return {.atomic_bytes = has(IBV_EXP_QP_INIT_ATTR_ATOMICS_ARG) ? attr.max_atomic_arg : 0,
          .key_pieces = has(IBV_EXP_QP_INIT_ATTR_MAX_INL_KLMS) ? attr.max_inl_send_klms : 0,
          .tso_header = has(IBV_EXP_QP_INIT_ATTR_MAX_TSO_HEADER) ? attr.max_tso_header : 0u};
}

// Offloads and underlay networks that the device lacks were no invalid request.
Error failed_with(const ibv_exp_qp_init_attr &attr, Error error) {
  constexpr std::uint32_t offloads =
      IBV_EXP_QP_CREATE_RX_END_PADDING | IBV_EXP_QP_CREATE_SCATTER_FCS |
      IBV_EXP_QP_CREATE_TUNNEL_OFFLOADS | IBV_EXP_QP_CREATE_PACKET_BASED_CREDIT_MODE;
  const bool asked = ((attr.comp_mask & IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS) != 0 &&
                      (attr.exp_create_flags & offloads) != 0) ||
                     (attr.comp_mask & IBV_EXP_QP_INIT_ATTR_ASSOCIATED_QPN) != 0;
  return asked && error.code == EINVAL ? Error{EOPNOTSUPP} : error;
}

// What libmlx5's builders do not serve. Their requests are counted, so that completions have to pass
// this library.
Result<void> check_builders(ContextState &state, const ModernQpInit &modern, By by,
                            std::uint32_t key_change_bytes) {
  ibv_cq *const cq = modern.attr.send_cq;
  const bool builders = modern.attr.qp_type == IBV_QPT_DRIVER || key_change_bytes != 0;
  if (by == By::engine || !builders || cq == nullptr) return {};
  if (key_change_bytes != 0 && modern.attr.qp_type != IBV_QPT_RC)
    return unsupported(creating, "max_inl_send_klms", key_change_bytes,
                       "on rdma-core's data path keys are filled on RC queue pairs only");
  const CqState *own = find_cq(&state, cq);
  if (reinterpret_cast<const ibv_cq_ex *>(cq)->start_poll == nullptr ||
      (own != nullptr && own->entry_size != 0))
    return {};
  return unsupported(creating, "send_cq", cq->handle,
                     "on rdma-core's data path DC and UMR cannot complete on an ibv_cq_ex");
}

// Cross-channel: by the engine, which alone writes such requests. The register that it rings; null
// is libmlx5's.
Result<void *> join_channel_of(ContextState &state, ibv_qp *made, const ModernQpInit &modern,
                               queue::Sides by) {
  if (modern.scales())
    return unsupported(creating, "exp_create_flags", modern.channel,
                       "a QP over a table of work queues has no queues of its own");
  if (by.send != By::engine || by.receive != By::engine)
    return unsupported(creating, "exp_create_flags", modern.channel,
                       "not on rdma-core's data path, nor with a CQ of ibv_create_cq_ex()");
  opened_by(Beyond::cross_channel, name_of_feature<FeatureId::IBV_EXP_QP_CREATE_CROSS_CHANNEL>);
  if ((modern.channel & managing_flags) == 0) return nullptr;
  return join_channel(state, made, modern);
}

bool binds_windows(ContextState &state) { return !is_set(state, "MLX5_SHUT_UP_MW"); }

// What the program gets. type: its number.
Result<ibv_qp *> create_and_remember(ContextState &state, ModernQpInit &modern,
                                     const queue::Ends &ends, ibv_qp_type type, EntryRoom &room,
                                     bool single_threaded = false) {
  const std::uint32_t key_change_bytes = room.key_change_bytes;
  if (modern.needs_dv && !mlx5dv_is_supported(state.context->device))
    return unsupported(creating, "qp_type or exp_create_flags",
                       static_cast<std::uint64_t>(modern.attr.qp_type), "needs an mlx5 device");
  if (key_change_bytes != 0 && !mlx5dv_is_supported(state.context->device))
    return unsupported(creating, "max_inl_send_klms", key_change_bytes, "needs an mlx5 device");
  // libmlx5 calculates in int: the size of an entry overflows, and less is granted.
  if (modern.attr.cap.max_inline_data > inline_limit)
    return invalid(creating, "cap.max_inline_data", modern.attr.cap.max_inline_data,
                   "more than the largest WQE holds");
  const queue::Joining joining(state, ends, &modern.attr.send_cq, &modern.attr.recv_cq,
                               modern.attr.srq,
                               queue::is_underlay(modern.attr) ? By::libmlx5 : By::engine);
  if (!joining) return joining.failure();
  if (const auto counted = check_builders(state, modern, joining.by().send, key_change_bytes);
      !counted)
    return counted.failure();
  room.by = joining.by().send;
  const KeepErrno keep;
  Owned<ibv_qp, destroy_real> made(make_qp(state, modern, room));
  if (!made) return keep.reason();
  void *page = nullptr;
  if (modern.channel != 0) {
    const auto joined = join_channel_of(state, made.get(), modern, joining.by());
    if (!joined) return joined.failure();
    page = joined.value();
  }
  std::unique_ptr<queue::Connection> connection;
  if (ends.shared != nullptr && ends.shared->own.strides != nullptr) {
    const auto connected =
        connect_to_strides(state, made.get(), modern, joining.by(), *ends.shared, &page);
    if (!connected) return connected.failure();
    connection.reset(connected.value());
  }
  const bool windows = binds_windows(state);
  const auto queues = queue::queues_of(modern.attr.qp_type, modern.scales());
  ibv_qp *const shown = queue::put_before(&state, made.get(), queues,
                                          {.type = type,
                                           .granted = modern.attr.cap,
                                           .signal_all = modern.attr.sq_sig_all != 0,
                                           .single_threaded = single_threaded,
                                           .ends = ends,
                                           .by = joining.by(),
                                           .windows = windows,
                                           .max_umr_pieces = modern.max_umr_pieces,
                                           .max_tso_header = modern.attr.max_tso_header,
                                           .channel = modern.channel,
                                           .page = page});
  // Nothing is posted to a scaling entry or completed by it, and its number is 0.
  if (connection != nullptr) {
    queue::QpFront &front = *queue::front_of(shown);
    front.own.connection = connection.release();
    front.own.special = true;
  }
  if (!modern.scales()) remember(state, made.get(), shown, modern, room.extra.has_value(), windows);
  static_cast<void>(made.release());
  return shown;
}

// A queue pair shows the program's own protection domain, not the stand-in that
// rdma-core was given.
void keep_domain(ContextState &state, DomainUse &domain, ibv_qp *qp) {
  ibv_pd *const shown = domain.share().pd;
  try {
    domain.keep(qp);
  } catch (...) {
    destroy_qp(&state, qp);
    throw;
  }
  if (shown != nullptr) qp->pd = shown;
}

}  // namespace

Result<ibv_qp *> create_qp(ContextState &state, ibv_context *, ibv_exp_qp_init_attr *attr) {
  if (attr == nullptr) return invalid(creating, "attributes", 0, "must not be null");
  QpQueues queues(*attr);
  if (const auto checked = check(state, *attr, queues); !checked) return checked.failure();
  ModernQpInit modern = to_modern(*attr);
  queues.put_into(modern.attr);
  // libibverbs before release 32 looks into the domain whatever the type.
  if (modern.attr.qp_type != IBV_QPT_XRC_RECV) modern.attr.comp_mask &= ~IBV_QP_INIT_ATTR_XRCD;
  if ((attr->comp_mask & IBV_EXP_QP_INIT_ATTR_RX_HASH) != 0)
    modern.attr.rwq_ind_tbl = state.rwq_tables.find(attr->rx_hash_conf->rwq_ind_tbl)->real;
  DomainUse domain(state);
  if ((attr->comp_mask & IBV_EXP_QP_INIT_ATTR_RES_DOMAIN) != 0) {
    if (const auto entered = domain.enter(creating, attr->res_domain, modern.attr.pd); !entered)
      return entered.failure();
    modern.attr.pd = domain.pd();
  }
  EntryRoom room{.key_change_bytes = key_change_bytes(*attr), .extra = extra_of(*attr)};
  const auto made =
      create_and_remember(state, modern, queues.ends, attr->qp_type, room, domain.unlocked());
  if (!made) return failed_with(*attr, made.failure());

  ibv_qp *const qp = queue::behind(made.value());
  if (domain) {
    keep_domain(state, domain, qp);
    made.value()->pd = qp->pd;
  }
  attr->cap = modern.attr.cap;
  if ((attr->comp_mask & IBV_EXP_QP_INIT_ATTR_INL_RECV) != 0 && attr->max_inl_recv != 0)
    attr->max_inl_recv = granted_inline_receive(state, qp, modern);
  return made;
}

namespace {

// A queue of the context that the engine drives for good.
template <class Front>
bool is_settled(const Front *front, const ibv_context *context) {
  return front != nullptr && front->own.back != nullptr && front->own.back->context == context &&
         queue::Joining::is_settled(front);
}

// A queue pair as most are: there is nothing to refuse or to decide, and ibv_create_qp() makes it.
[[gnu::always_inline]] inline bool is_plain(const ContextState &state, const queue::Ends &ends,
                                            const ibv_qp_init_attr &attr) {
  switch (attr.qp_type) {
    case IBV_QPT_RC:
    case IBV_QPT_UC:
    case IBV_QPT_UD:
    case IBV_QPT_RAW_PACKET: break;
    default: return false;
  }
  return is_settled(ends.send, state.context) && is_settled(ends.receive, state.context) &&
         (attr.srq == nullptr ||
          (is_settled(ends.shared, state.context) && ends.shared->own.strides == nullptr)) &&
         attr.cap.max_inline_data <= inline_limit && state.knows_device() &&
         !must_not_scatter_answers(attr.qp_type);
}

// No error and null: create_and_remember() has other sizes to try.
[[gnu::always_inline]] inline Result<ibv_qp *> create_plain(ContextState &state, ibv_pd *pd,
                                                            const queue::Ends &ends,
                                                            ibv_qp_init_attr &attr) {
  const bool as_legacy = state.is_legacy;
  ibv_qp_init_attr asked = attr;
  asked.send_cq = ends.send->own.back;
  asked.recv_cq = ends.receive->own.back;
  if (ends.shared != nullptr) asked.srq = ends.shared->own.back;
  const KeepErrno keep;
  Owned<ibv_qp, destroy_real> made(as_legacy ? make_plain_as_legacy(state, pd, asked)
                                             : real_behind_front().ibv_create_qp(pd, &asked));
  if (!made) {
    if (as_legacy && errno == EINVAL) return nullptr;
    return keep.reason();
  }
  const bool windows = binds_windows(state);
  ibv_qp *const shown = queue::put_before(&state, made.get(), queue::Queues::own,
                                          {.granted = asked.cap,
                                           .signal_all = asked.sq_sig_all != 0,
                                           .ends = ends,
                                           .by = {By::engine, By::engine},
                                           .windows = windows});
  auto &front = reinterpret_cast<queue::QpFront &>(*shown);
  if (front.own.engine == nullptr) [[unlikely]] {
    queue::remove(front);
    return nullptr;
  }
  note(front.own.notes, asked.cap, as_legacy, windows);
  front.own.known = &front.own.notes;
  attr.cap = asked.cap;
  static_cast<void>(made.release());
  return shown;
}

[[gnu::noinline]] Result<ibv_qp *> create_any(ContextState *state, ibv_pd *pd,
                                              ibv_qp_init_attr *attr) {
  if (attr == nullptr) return invalid(creating, "attributes", 0, "must not be null");
  // rdma-core's number of a DC initiator, without what it needs beside it there.
  if (attr->qp_type == IBV_QPT_DRIVER)
    return invalid(creating, "qp_type", IBV_QPT_DRIVER, "not a value of enum ibv_qp_type");
  QpQueues queues(*attr);
  if (queues.srq != nullptr && is_legacy(queues.srq))
    return invalid(creating, "srq", queues.srq->handle,
                   "an XRC SRQ cannot be attached to a queue pair: senders name it by number");
  // Other numbers than the legacy ones are rdma-core's to judge.
  const bool is_legacy_type = attr->qp_type == IBV_EXP_QPT_DC_INI || attr->qp_type == IBV_QPT_XRC;
  if (state == nullptr) {
    const KeepErrno keep;
    return keep.made(real().ibv_create_qp(pd, attr));
  }
  if (const auto checked = check_queues(creating, pd->context, *attr, queues); !checked)
    return checked.failure();
  if (const auto asked = ask_device(*state); !asked) return asked.failure();
  ModernQpInit modern = to_modern(*attr, pd);
  EntryRoom room;
  if (is_legacy_type) state->is_legacy = true;
  if (state->is_legacy) {
    room.extra.emplace();
  } else {
    // Receives of an initiator are rdma-core's to refuse.
    modern.attr.srq = attr->srq;
    modern.attr.cap = attr->cap;
  }
  queues.put_into(modern.attr);
  const auto made = create_and_remember(*state, modern, queues.ends, attr->qp_type, room);
  if (!made) return made;
  attr->cap = modern.attr.cap;
  return made;
}

}  // namespace

Result<ibv_qp *> create_base_qp(ContextState *state, ibv_pd *pd, ibv_qp_init_attr *attr) {
  if (state != nullptr && attr != nullptr) [[likely]] {
    const queue::Ends ends = queue::ends_of(*attr);
    if (is_plain(*state, ends, *attr)) [[likely]] {
      const auto made = create_plain(*state, pd, ends, *attr);
      if (!made || made.value() != nullptr) [[likely]]
        return made;
    }
  }
  return create_any(state, pd, attr);
}

namespace {

// Destroys a queue pair of which more is kept than in its front.
[[gnu::noinline]] int destroy_kept(ContextState &state, QpState *entry, ibv_qp *qp) {
  // Out of the table first: the number may be given out again at once.
  const std::uint32_t number = qp->qp_num;
  if (entry != nullptr) {
    const MutexGuard guard(state.mutex);
    state.qps.set(number, nullptr);
    if (CqState *cq = entry->raw ? find_cq(&state, entry->recv_cq) : nullptr)
      cq->remove_raw(queue::shown(qp));
  }
  DomainUse domain(state);
  domain.take(qp);
  // rdma-core has to see what it was created with.
  if (domain && domain.pd() != nullptr) qp->pd = domain.pd();
  const int result = real().ibv_destroy_qp(qp);
  if (result != 0 && domain) keep_domain(state, domain, qp);
  if (entry != nullptr) {
    const MutexGuard guard(state.mutex);
    if (result == 0) {
      state.qp_pool.give_back(*entry);
    } else {
      state.qps.set(number, entry);
      if (CqState *cq = entry->raw ? find_cq(&state, entry->recv_cq) : nullptr)
        cq->add_raw(queue::shown(qp));
    }
  }
  return result;
}

}  // namespace

int destroy_any(ContextState *state, queue::QpFront *front, ibv_qp *qp) {
  QpState *const entry =
      queue::state_of(front, front != nullptr ? front->own.known : find_qp(state, qp));
  if (front != nullptr && front->own.connection != nullptr) {
    if (const int error = front->own.connection->destroy(); error != 0) return error;
  }
  const bool shares = state != nullptr && state->has_domain_shares;
  const int result =
      entry != nullptr || shares ? destroy_kept(*state, entry, qp) : real().ibv_destroy_qp(qp);
  if (result == 0) {
    if (front != nullptr) queue::remove(front);
    else if (state != nullptr) queue::let_go(*state, qp);
  }
  return result;
}

}  // namespace ibvexp::translate
