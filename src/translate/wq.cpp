#include "wq.h"

#include "context_state.h"
#include "diagnose.h"
#include "res_domain.h"
#include "wq_convert.h"

#include <cerrno>
#include <memory>
#include <vector>

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

int positive(int error) { return error < 0 ? -error : error; }

bool alive(const ibv_context *context, const void *handle) {
  ContextState *state = find_state(const_cast<ibv_context *>(context));
  if (state == nullptr) return false;
  const std::lock_guard guard(state->mutex);
  return state->handles.contains(handle);
}

// Runs a creation of rdma-core and tells why it failed. errno of a success is
// not ours to change.
template <class Create>
auto reasoned(Create create) -> Result<decltype(create())> {
  const int kept = errno;
  errno = 0;
  auto *made = create();
  const int reason = errno != 0 ? errno : EINVAL;
  errno = kept;
  if (made == nullptr) return Error{reason};
  return made;
}

Result<void> check_vlan(EntryId entry, std::uint32_t offloads) {
  return check_bits(entry, "vlan_offloads", offloads, bits_of<"ibv_exp_vlan_offloads">());
}

Result<void> check(const ibv_context *context, const ibv_exp_wq_init_attr *attr) {
  if (attr == nullptr) return invalid(creating, "attributes", 0, "must not be null");
  if (const auto bits = check_bits(creating, "comp_mask", attr->comp_mask,
                                   bits_of<"ibv_exp_wq_init_attr_mask">());
      !bits)
    return bits;
  if (attr->wq_type == IBV_EXP_WQT_SRQ)
    return unsupported(creating, FeatureId::IBV_EXP_WQT_SRQ, "wq_type", IBV_EXP_WQT_SRQ);
  if (attr->wq_type != IBV_EXP_WQT_RQ)
    return invalid(creating, "wq_type", static_cast<unsigned>(attr->wq_type), "no such type");
  if (attr->pd == nullptr) return invalid(creating, "pd", 0, "must not be null");
  if (attr->cq == nullptr) return invalid(creating, "cq", 0, "must not be null");
  if (attr->pd->context != context) return invalid(creating, "pd", 0, "of another context");
  if (attr->cq->context != context) return invalid(creating, "cq", 0, "of another context");
  if (attr->max_recv_wr == 0 || attr->max_recv_wr > most_requests)
    return invalid(creating, "max_recv_wr", attr->max_recv_wr, "no possible size");
  if ((attr->comp_mask & IBV_EXP_CREATE_WQ_VLAN_OFFLOADS) != 0)
    if (const auto vlan = check_vlan(creating, attr->vlan_offloads); !vlan) return vlan;
  if ((attr->comp_mask & IBV_EXP_CREATE_WQ_FLAGS) != 0)
    return check_bits(creating, "flags", attr->flags, bits_of<"ibv_exp_wq_init_attr_flags">());
  return {};
}

// The modern queue of a checked request; attr receives what was granted.
Result<ibv_wq *> make(ibv_context *context, ibv_exp_wq_init_attr &attr, ibv_pd *pd) {
  ibv_wq_init_attr modern = to_modern(attr);
  modern.pd = pd;
  const auto made = reasoned([&] { return ibv_create_wq(context, &modern); });
  if (!made) return made;
  attr.max_recv_wr = modern.max_wr;
  attr.max_recv_sge = modern.max_sge;
  return made;
}

void hand_out(ContextState &state, WorkQueue *queue, ibv_cq *completions) {
  const std::lock_guard guard(state.mutex);
  CqState &cq = need_cq(state, completions);
  const auto entered = state.handles.insert(queue).first;
  try {
    cq.add_raw(nullptr);
  } catch (...) {
    state.handles.erase(entered);
    throw;
  }
}

// Destroys what could not be entered anywhere.
struct Undo {
  ibv_wq *queue = nullptr;
  ibv_rwq_ind_table *table = nullptr;
  ~Undo() {
    if (queue != nullptr) ibv_destroy_wq(queue);
    if (table != nullptr) ibv_destroy_rwq_ind_table(table);
  }
};

}  // namespace

WorkQueue *find_wq(const ibv_exp_wq *wq) {
  if (wq == nullptr || !alive(wq->context, wq)) return nullptr;
  return static_cast<WorkQueue *>(const_cast<ibv_exp_wq *>(wq));
}

IndirectionTable *find_table(const ibv_exp_rwq_ind_table *table) {
  if (table == nullptr || !alive(table->context, table)) return nullptr;
  return static_cast<IndirectionTable *>(const_cast<ibv_exp_rwq_ind_table *>(table));
}

Result<ibv_exp_wq *> create_wq(ibv_context *context, ibv_exp_wq_init_attr *attr) {
  if (const auto checked = check(context, attr); !checked) return checked.failure();
  ContextState *state = find_state(context);
  if (state == nullptr) return Error{ENOTSUP};

  auto fresh = std::make_unique<WorkQueue>();
  DomainUse domain(*state);
  if ((attr->comp_mask & IBV_EXP_CREATE_WQ_RES_DOMAIN) != 0)
    if (const auto entered = domain.enter(creating, attr->res_domain, attr->pd); !entered)
      return entered.failure();
  const auto made = make(context, *attr, domain ? domain.pd() : attr->pd);
  if (!made) return made.failure();
  Undo undo;
  undo.queue = made.value();
  fresh->real = made.value();
  fresh->context = context;
  fresh->wq_context = attr->wq_context;
  fresh->handle = fresh->real->handle;
  fresh->pd = attr->pd;
  fresh->cq = attr->cq;
  fresh->wq_num = fresh->real->wq_num;
  fresh->state = static_cast<ibv_exp_wq_state>(fresh->real->state);
  fresh->wq_type = attr->wq_type;

  if (domain) domain.keep(fresh.get());
  try {
    hand_out(*state, fresh.get(), attr->cq);
  } catch (...) {
    domain.take(fresh.get());
    throw;
  }
  undo.queue = nullptr;
  return fresh.release();
}

Result<void> modify_wq(ibv_exp_wq *wq, ibv_exp_wq_attr *attr) {
  WorkQueue *ours = find_wq(wq);
  if (ours == nullptr) return invalid(modifying, "wq", 0, "no work queue of this library");
  if (attr == nullptr) return invalid(modifying, "attributes", 0, "must not be null");
  if (attr->attr_mask == 0) return invalid(modifying, "attr_mask", 0, "nothing to change");
  if (const auto bits = check_bits(modifying, "attr_mask", attr->attr_mask,
                                   bits_of<"ibv_exp_wq_attr_mask">());
      !bits)
    return bits;
  const auto has = [&](std::uint32_t bit) { return (attr->attr_mask & bit) != 0; };
  if (has(IBV_EXP_WQ_ATTR_STATE) && (attr->wq_state < IBV_EXP_WQS_RESET ||
                                     attr->wq_state > IBV_EXP_WQS_ERR))
    return invalid(modifying, "wq_state", static_cast<unsigned>(attr->wq_state), "no such state");
  if (has(IBV_EXP_WQ_ATTR_CURR_STATE) && attr->curr_wq_state != ours->state)
    return invalid(modifying, "curr_wq_state", static_cast<unsigned>(attr->curr_wq_state),
                   "not the state that the queue is in");
  if (has(IBV_EXP_WQ_ATTR_VLAN_OFFLOADS))
    if (const auto vlan = check_vlan(modifying, attr->vlan_offloads); !vlan) return vlan;

  const int kept = errno;
  ibv_wq_attr modern = to_modern(*attr);
  const int error = ibv_modify_wq(ours->real, &modern);
  errno = kept;
  if (error != 0) return Error{positive(error)};
  ours->state = static_cast<ibv_exp_wq_state>(ours->real->state);
  return {};
}

Result<void> destroy_wq(ibv_exp_wq *wq) {
  WorkQueue *ours = find_wq(wq);
  if (ours == nullptr) return invalid(destroying, "wq", 0, "no work queue of this library");
  ContextState &state = *find_state(ours->context);
  DomainUse domain(state);
  domain.take(ours);
  const int kept = errno;
  const int error = ibv_destroy_wq(ours->real);
  errno = kept;
  if (error != 0) {
    if (domain) domain.keep(ours);
    return Error{positive(error)};
  }
  {
    const std::lock_guard guard(state.mutex);
    state.handles.erase(ours);
    if (CqState *cq = find_cq(&state, ours->cq)) cq->remove_raw(nullptr);
  }
  delete ours;
  return {};
}

Result<ibv_exp_rwq_ind_table *> create_rwq_ind_table(ibv_context *context,
                                                     ibv_exp_rwq_ind_table_init_attr *attr) {
  if (attr == nullptr) return invalid(creating_table, "attributes", 0, "must not be null");
  if (attr->comp_mask != 0)
    return invalid(creating_table, "comp_mask", attr->comp_mask, "unknown bits");
  if (attr->pd != nullptr && attr->pd->context != context)
    return invalid(creating_table, "pd", 0, "of another context");
  if (attr->ind_tbl == nullptr) return invalid(creating_table, "ind_tbl", 0, "must not be null");
  ContextState *state = find_state(context);
  if (state == nullptr) return Error{ENOTSUP};

  // libibverbs puts the entries on the stack, as many as it is told.
  ibv_device_attr_ex device{};
  const int kept = errno;
  if (const int error = ibv_query_device_ex(context, nullptr, &device); error != 0) {
    errno = kept;
    return Error{positive(error)};
  }
  errno = kept;
  if (attr->log_ind_tbl_size > 31 || (std::uint64_t{1} << attr->log_ind_tbl_size) >
                                         device.rss_caps.max_rwq_indirection_table_size)
    return invalid(creating_table, "log_ind_tbl_size", attr->log_ind_tbl_size,
                   "more entries than the device has");

  std::vector<ibv_wq *> entries(std::size_t{1} << attr->log_ind_tbl_size);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const WorkQueue *wq = find_wq(attr->ind_tbl[i]);
    if (wq == nullptr || wq->context != context)
      return invalid(creating_table, "ind_tbl: entry", i, "no work queue of this context");
    entries[i] = wq->real;
  }

  auto fresh = std::make_unique<IndirectionTable>();
  ibv_rwq_ind_table_init_attr modern{};
  modern.log_ind_tbl_size = attr->log_ind_tbl_size;
  modern.ind_tbl = entries.data();
  const auto made = reasoned([&] { return ibv_create_rwq_ind_table(context, &modern); });
  if (!made) return made.failure();
  Undo undo;
  undo.table = made.value();
  fresh->real = made.value();
  fresh->context = context;
  fresh->pd = attr->pd;
  fresh->ind_tbl_handle = fresh->real->ind_tbl_handle;
  fresh->ind_tbl_num = fresh->real->ind_tbl_num;

  const std::lock_guard guard(state->mutex);
  state->handles.insert(fresh.get());
  undo.table = nullptr;
  return fresh.release();
}

Result<void> destroy_rwq_ind_table(ibv_exp_rwq_ind_table *table) {
  IndirectionTable *ours = find_table(table);
  if (ours == nullptr)
    return invalid(destroying_table, "rwq_ind_table", 0, "no table of this library");
  const int kept = errno;
  const int error = ibv_destroy_rwq_ind_table(ours->real);
  errno = kept;
  if (error != 0) return Error{positive(error)};
  ContextState &state = *find_state(ours->context);
  {
    const std::lock_guard guard(state.mutex);
    state.handles.erase(ours);
  }
  delete ours;
  return {};
}

}  // namespace ibvexp::translate
