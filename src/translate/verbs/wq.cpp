#include "translate/verbs/wq.h"

#include <cerrno>
#include <iterator>
#include <memory>
#include <vector>

#include "base/keep_errno.h"
#include "base/owned.h"
#include "base/real.h"
#include "trace/diagnose.h"
#include "translate/convert/wq_convert.h"
#include "translate/queue/fronts.h"
#include "translate/verbs/device.h"
#include "translate/verbs/res_domain.h"

namespace ibvexp::translate {

namespace {

constexpr EntryId creating = EntryId::ibv_exp_create_wq;
constexpr EntryId modifying = EntryId::ibv_exp_modify_wq;
constexpr EntryId destroying = EntryId::ibv_exp_destroy_wq;
constexpr EntryId creating_table = EntryId::ibv_exp_create_rwq_ind_table;
constexpr EntryId destroying_table = EntryId::ibv_exp_destroy_rwq_ind_table;

// libmlx5 computes the size of the queue in an int; no entry is larger than 512
// bytes.
constexpr std::uint32_t most_requests = 1u << 22;

Result<void> check_vlan(EntryId entry, std::uint32_t offloads) {
  return check_bits(entry, "vlan_offloads", offloads, bits_of<"ibv_exp_vlan_offloads">());
}

Result<void> check_strides(ibv_context *context, const ibv_exp_wq_mp_rq &asked) {
  mlx5dv_context device{};
  device.comp_mask = MLX5DV_CONTEXT_MASK_STRIDING_RQ;
  if (!mlx5dv_is_supported(context->device) || mlx5dv_query_device(context, &device) != 0 ||
      (device.comp_mask & MLX5DV_CONTEXT_MASK_STRIDING_RQ) == 0)
    return unsupported(creating, "mp_rq", 0, "the device has no striding receive queues");
  const mlx5dv_striding_rq_caps &caps = device.striding_rq_caps;
  if (asked.use_shift != IBV_EXP_MP_RQ_NO_SHIFT && asked.use_shift != IBV_EXP_MP_RQ_2BYTES_SHIFT)
    return invalid(creating, "mp_rq.use_shift", asked.use_shift,
                   "must be IBV_EXP_MP_RQ_NO_SHIFT or IBV_EXP_MP_RQ_2BYTES_SHIFT");
  if (asked.single_stride_log_num_of_bytes < caps.min_single_stride_log_num_of_bytes ||
      asked.single_stride_log_num_of_bytes > caps.max_single_stride_log_num_of_bytes)
    return invalid(creating, "mp_rq.single_stride_log_num_of_bytes",
                   asked.single_stride_log_num_of_bytes,
                   "outside of the range in mp_rq_caps of ibv_exp_query_device");
  if (asked.single_wqe_log_num_of_strides < caps.min_single_wqe_log_num_of_strides ||
      asked.single_wqe_log_num_of_strides > caps.max_single_wqe_log_num_of_strides)
    return invalid(creating, "mp_rq.single_wqe_log_num_of_strides",
                   asked.single_wqe_log_num_of_strides,
                   "outside of the range in mp_rq_caps of ibv_exp_query_device");
  return {};
}

Result<void> check(ibv_context *context, const ibv_exp_wq_init_attr &attr, const ibv_cq *cq) {
  if (const auto bits =
          check_bits(creating, "comp_mask", attr.comp_mask, bits_of<"ibv_exp_wq_init_attr_mask">());
      !bits)
    return bits;
  if (attr.wq_type == IBV_EXP_WQT_SRQ)
    return unsupported(creating, FeatureId::IBV_EXP_WQT_SRQ, "wq_type", IBV_EXP_WQT_SRQ);
  if (attr.wq_type != IBV_EXP_WQT_RQ)
    return invalid(creating, "wq_type", static_cast<unsigned>(attr.wq_type),
                   "must be IBV_EXP_WQT_RQ");
  if (attr.pd == nullptr) return invalid(creating, "pd", 0, "must not be null");
  if (cq == nullptr) return invalid(creating, "cq", 0, "must not be null");
  if (attr.pd->context != context) return invalid(creating, "pd", 0, "of another context");
  if (cq->context != context) return invalid(creating, "cq", 0, "of another context");
  if (attr.max_recv_wr == 0 || attr.max_recv_wr > most_requests)
    return invalid(creating, "max_recv_wr", attr.max_recv_wr, "must be 1 to 4194304");
  if ((attr.comp_mask & IBV_EXP_CREATE_WQ_VLAN_OFFLOADS) != 0)
    if (const auto vlan = check_vlan(creating, attr.vlan_offloads); !vlan) return vlan;
  if ((attr.comp_mask & IBV_EXP_CREATE_WQ_MP_RQ) != 0)
    if (const auto strides = check_strides(context, attr.mp_rq); !strides) return strides;
  if ((attr.comp_mask & IBV_EXP_CREATE_WQ_FLAGS) != 0)
    return check_bits(creating, "flags", attr.flags, bits_of<"ibv_exp_wq_init_attr_flags">(),
                      ~std::uint64_t{0});
  return {};
}

// The modern queue of a checked request; attr receives what was granted.
ibv_wq *make(ibv_context *context, ibv_exp_wq_init_attr &attr, ibv_cq *cq, ibv_pd *pd) {
  ibv_wq_init_attr modern = to_modern(attr);
  modern.cq = cq;
  modern.pd = pd;
  mlx5dv_wq_init_attr strides = to_modern_strides(attr);
  ibv_wq *made = strides.comp_mask != 0 ? real().mlx5dv_create_wq(context, &modern, &strides)
                                        : queue::create_native(context, modern);
  if (made != nullptr) {
    attr.max_recv_wr = modern.max_wr;
    attr.max_recv_sge = modern.max_sge;
  }
  return made;
}

WorkQueue &enter(ContextState &state, std::unique_ptr<WorkQueue> fresh) {
  const MutexGuard guard(state.mutex);
  CqState &cq = need_cq(state, fresh->cq);
  cq.add_raw(nullptr);
  try {
    return *state.work_queues.add(std::move(fresh));
  } catch (...) {
    cq.remove_raw(nullptr);
    throw;
  }
}

// Its completion queue is without it from here on.
void leave(ContextState &state, const WorkQueue &wq) noexcept {
  const MutexGuard guard(state.mutex);
  if (CqState *cq = find_cq(&state, wq.cq)) cq->remove_raw(nullptr);
}

}  // namespace

Result<ibv_exp_wq *> create_wq(ContextState &state, ibv_context *context,
                               ibv_exp_wq_init_attr *attr) {
  if (attr == nullptr) return invalid(creating, "attributes", 0, "must not be null");
  ibv_cq *cq = queue::behind(attr->cq);
  if (const auto checked = check(context, *attr, cq); !checked) return checked.failure();

  const queue::Joining joining(state, &cq, nullptr, queue::By::engine);
  if (!joining) return joining.failure();
  const bool multi_packet = (attr->comp_mask & IBV_EXP_CREATE_WQ_MP_RQ) != 0;
  if (multi_packet && joining.receives() == queue::By::libmlx5)
    return unsupported(creating, "mp_rq", attr->comp_mask,
                       "rdma-core's data path, which this queue is on, does not report strides");
  auto fresh = std::make_unique<WorkQueue>();
  DomainUse domain(state);
  if ((attr->comp_mask & IBV_EXP_CREATE_WQ_RES_DOMAIN) != 0)
    if (const auto entered = domain.enter(creating, attr->res_domain, attr->pd); !entered)
      return entered.failure();
  const KeepErrno keep;
  Owned<ibv_wq, ibv_destroy_wq> made(make(context, *attr, cq, domain ? domain.pd() : attr->pd));
  if (!made) return keep.reason();
  fresh->real = made.get();
  fresh->context = context;
  fresh->wq_context = attr->wq_context;
  fresh->handle = fresh->real->handle;
  fresh->pd = attr->pd;
  fresh->cq = cq;
  fresh->wq_num = fresh->real->wq_num;
  fresh->state = static_cast<ibv_exp_wq_state>(fresh->real->state);
  fresh->wq_type = attr->wq_type;
  fresh->multi_packet = multi_packet;
  if (multi_packet) fresh->strides = attr->mp_rq;

  WorkQueue *const wq = fresh.get();
  if (domain) domain.keep(wq);
  // Until everything is in its place.
  struct Entered {
    ContextState &state;
    DomainUse &domain;
    WorkQueue *wq;
    bool listed = false;
    ~Entered() {
      if (wq == nullptr) return;
      if (const auto gone = state.work_queues.claim(listed ? wq : nullptr)) {
        leave(state, *wq);
        state.work_queues.retire(gone);
      }
      domain.take(wq);
    }
  } entered{state, domain, wq};
  enter(state, std::move(fresh));
  entered.listed = true;
  ibv_exp_wq *const shown =
      queue::put_before(&state, wq, wq->real, attr->max_recv_sge,
                        wq->multi_packet ? &wq->strides : nullptr, joining.receives());
  wq->front = queue::front_of(shown);
  entered.wq = nullptr;
  static_cast<void>(made.release());
  return shown;
}

Result<void> modify_wq(ContextState &state, ibv_exp_wq *wq, ibv_exp_wq_attr *attr) {
  WorkQueue *ours = state.work_queues.find(wq);
  if (ours == nullptr) return invalid(modifying, "wq", 0, "not a work queue of this library");
  if (attr == nullptr) return invalid(modifying, "attributes", 0, "must not be null");
  if (const auto bits =
          check_bits(modifying, "attr_mask", attr->attr_mask, bits_of<"ibv_exp_wq_attr_mask">());
      !bits)
    return bits;
  const auto has = [&](std::uint32_t bit) { return (attr->attr_mask & bit) != 0; };
  if (has(IBV_EXP_WQ_ATTR_STATE) &&
      (attr->wq_state < IBV_EXP_WQS_RESET || attr->wq_state > IBV_EXP_WQS_ERR))
    return invalid(modifying, "wq_state", static_cast<unsigned>(attr->wq_state),
                   "not a value of enum ibv_exp_wq_state");
  if ((attr->attr_mask & ~std::uint32_t{IBV_EXP_WQ_ATTR_CURR_STATE}) == 0) return {};
  if (has(IBV_EXP_WQ_ATTR_CURR_STATE) && attr->curr_wq_state != ours->state)
    return invalid(modifying, "curr_wq_state", static_cast<unsigned>(attr->curr_wq_state),
                   "not the state that the queue is in");
  if (has(IBV_EXP_WQ_ATTR_VLAN_OFFLOADS))
    if (const auto vlan = check_vlan(modifying, attr->vlan_offloads); !vlan) return vlan;

  const KeepErrno keep;
  ibv_wq_attr modern = to_modern(*attr);
  if (const auto changed = outcome(ibv_modify_wq(ours->real, &modern)); !changed) return changed;
  ours->state = static_cast<ibv_exp_wq_state>(ours->real->state);
  if (ours->front != nullptr) ours->front->shown.state = ours->state;
  if (has(IBV_EXP_WQ_ATTR_STATE) && ours->front != nullptr)
    queue::follow(*ours->front, ours->state);
  return {};
}

Result<void> destroy_wq(ContextState &state, ibv_exp_wq *wq) {
  const auto gone = state.work_queues.claim(wq);
  if (!gone) return invalid(destroying, "wq", 0, "not a work queue of this library");
  DomainUse domain(state);
  domain.take(gone.get());
  const KeepErrno keep;
  const int error = ibv_destroy_wq(gone->real);
  if (error == 0) {
    queue::remove(gone->front);
    leave(state, *gone);
  } else if (domain) {
    domain.keep(gone.get());
  }
  return state.work_queues.settle(gone, error);
}

Result<ibv_exp_rwq_ind_table *> create_rwq_ind_table(ContextState &state, ibv_context *context,
                                                     ibv_exp_rwq_ind_table_init_attr *attr) {
  if (attr == nullptr) return invalid(creating_table, "attributes", 0, "must not be null");
  if (attr->comp_mask != 0)
    return invalid(creating_table, "comp_mask", attr->comp_mask, "unknown bits");
  if (attr->pd != nullptr && attr->pd->context != context)
    return invalid(creating_table, "pd", 0, "of another context");
  if (attr->ind_tbl == nullptr) return invalid(creating_table, "ind_tbl", 0, "must not be null");

  // libibverbs puts the entries on the stack, as many as it is given.
  const auto device = extended_device(state);
  if (!device) return device.failure();
  if (attr->log_ind_tbl_size > 31 || (std::uint64_t{1} << attr->log_ind_tbl_size) >
                                         device.value()->rss_caps.max_rwq_indirection_table_size)
    return invalid(creating_table, "log_ind_tbl_size", attr->log_ind_tbl_size,
                   "more entries than max_rwq_indirection_table_size of the device");

  const std::size_t size = std::size_t{1} << attr->log_ind_tbl_size;
  ibv_wq *few[16];
  std::vector<ibv_wq *> many;
  if (size > std::size(few)) many.resize(size);
  ibv_wq **const entries = many.empty() ? few : many.data();
  for (std::size_t i = 0; i < size; ++i) {
    const WorkQueue *wq = state.work_queues.find(queue::behind_any<ibv_exp_wq>(attr->ind_tbl[i]));
    if (wq == nullptr)
      return invalid(creating_table, "ind_tbl: entry", i, "not a work queue of this context");
    entries[i] = wq->real;
  }

  auto fresh = std::make_unique<IndirectionTable>();
  const KeepErrno keep;
  ibv_rwq_ind_table_init_attr modern{};
  modern.log_ind_tbl_size = attr->log_ind_tbl_size;
  modern.ind_tbl = entries;
  Owned<ibv_rwq_ind_table, ibv_destroy_rwq_ind_table> table(
      ibv_create_rwq_ind_table(context, &modern));
  if (!table) return keep.reason();
  fresh->real = table.get();
  fresh->context = context;
  fresh->pd = attr->pd;
  fresh->ind_tbl_handle = fresh->real->ind_tbl_handle;
  fresh->ind_tbl_num = fresh->real->ind_tbl_num;

  IndirectionTable *handle = state.rwq_tables.add(std::move(fresh));
  static_cast<void>(table.release());
  return handle;
}

Result<void> destroy_rwq_ind_table(ContextState &state, ibv_exp_rwq_ind_table *table) {
  const auto gone = state.rwq_tables.claim(table);
  if (!gone) return invalid(destroying_table, "rwq_ind_table", 0, "not a table of this library");
  const KeepErrno keep;
  return state.rwq_tables.settle(gone, ibv_destroy_rwq_ind_table(gone->real));
}

}  // namespace ibvexp::translate
