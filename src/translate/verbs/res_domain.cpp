#include "translate/verbs/res_domain.h"

#include <algorithm>

#include "base/keep_errno.h"
#include "base/log.h"
#include "base/owned.h"

namespace ibvexp::translate {

namespace {

constexpr EntryId creating = EntryId::ibv_exp_create_res_domain;
constexpr EntryId destroying = EntryId::ibv_exp_destroy_res_domain;

ibv_pd *make_parent(ibv_pd *pd, ibv_td *td) {
  ibv_parent_domain_init_attr attr{};
  attr.pd = pd;
  attr.td = td;
  return ibv_alloc_parent_domain(pd->context, &attr);
}

auto parent_of(ResDomain &domain, const ibv_pd *pd) {
  return std::find_if(domain.parents.begin(), domain.parents.end(),
                      [pd](const ResDomain::Parent &p) { return p.pd == pd; });
}

// Joins the parent that there is for share.pd. The caller holds the mutex. False: there is none.
bool join_parent(DomainShare &share) {
  const auto parent = parent_of(*share.domain, share.pd);
  if (parent == share.domain->parents.end()) return false;
  ++parent->uses;
  share.modern_pd = parent->parent;
  return true;
}

}  // namespace

// Locks may go where the program promises that calls do not overlap. Then, and
// only then, there is a thread domain, which comes with a doorbell page of its
// own. The messaging model is a hint about doorbells, except when it forces.
Result<ibv_exp_res_domain *> create_res_domain(ContextState &state, ibv_context *context,
                                               ibv_exp_res_domain_init_attr *attr) {
  if (attr == nullptr) return invalid(creating, "attributes", 0, "must not be null");
  if (const auto bits = check_bits(creating, "comp_mask", attr->comp_mask,
                                   bits_of<"ibv_exp_res_domain_init_attr_comp_mask">());
      !bits)
    return bits.failure();
  auto threads = IBV_EXP_THREAD_SAFE;
  auto messages = IBV_EXP_MSG_DEFAULT;
  if ((attr->comp_mask & IBV_EXP_RES_DOMAIN_THREAD_MODEL) != 0) threads = attr->thread_model;
  if ((attr->comp_mask & IBV_EXP_RES_DOMAIN_MSG_MODEL) != 0) messages = attr->msg_model;
  if (threads > IBV_EXP_THREAD_SINGLE) {
    ignored(creating, "thread_model", threads, "no such model");
    threads = IBV_EXP_THREAD_SAFE;
  }
  if (messages > IBV_EXP_MSG_FORCE_LOW_LATENCY) {
    ignored(creating, "msg_model", messages, "no such model");
    messages = IBV_EXP_MSG_DEFAULT;
  }

  auto made = std::make_unique<ResDomain>();
  made->handle.context = context;
  const KeepErrno keep;
  Owned<ibv_td, ibv_dealloc_td> td;
  // Objects that go unseen would hold it, and their protection domain, for ever.
  if (threads != IBV_EXP_THREAD_SAFE && state.sees_base_verbs) {
    ibv_td_init_attr attributes{};
    td.reset(ibv_alloc_td(context, &attributes));
    // Doorbell pages are few. Without one the objects keep their locks.
    if (!td && messages == IBV_EXP_MSG_FORCE_LOW_LATENCY) return keep.reason();
  }
  made->td = td.get();
  ibv_exp_res_domain *handle = &state.res_domains.add(std::move(made))->handle;
  static_cast<void>(td.release());
  return handle;
}

Result<void> destroy_res_domain(ContextState &state, ibv_context *, ibv_exp_res_domain *domain,
                                ibv_exp_destroy_res_domain_attr *attr) {
  if (domain == nullptr) return invalid(destroying, "res_dom", 0, "must not be null");
  if (attr != nullptr && attr->comp_mask != 0)
    return invalid(destroying, "comp_mask", attr->comp_mask, "unknown bits");

  std::unique_lock lock(state.mutex);
  const auto gone = state.res_domains.claim(domain);
  if (!gone) return invalid(destroying, "res_dom", 0, "of another context, or destroyed");
  // As the legacy provider had it: programs destroy the domain first.
  gone->destroyed = true;
  if (gone->uses != 0) return {};
  lock.unlock();
  const KeepErrno keep;
  const int error = gone->td != nullptr ? ibv_dealloc_td(gone->td) : 0;
  gone->destroyed = error == 0;
  return state.res_domains.settle(gone, error);
}

Result<void> DomainUse::enter(EntryId entry, ibv_exp_res_domain *handle, ibv_pd *pd) {
  if (handle == nullptr) return invalid(entry, "res_domain", 0, "must not be null");
  ResDomain *domain;
  {
    const MutexGuard guard(state_.mutex);
    domain = state_.res_domains.find(handle);
    if (domain == nullptr)
      return invalid(entry, "res_domain", 0, "of another context, or destroyed");
    ++domain->uses;
    share_ = {domain, pd, pd};
    if (domain->td == nullptr || pd == nullptr || join_parent(share_)) return {};
    domain->parents.reserve(domain->parents.size() + 1);
  }
  const KeepErrno keep;
  Owned<ibv_pd, ibv_dealloc_pd> fresh(make_parent(pd, domain->td));
  if (!fresh) return keep.reason();
  const MutexGuard guard(state_.mutex);
  if (join_parent(share_)) return {};  // that another thread has made
  domain->parents.push_back({pd, fresh.get(), 1});
  share_.modern_pd = fresh.release();
  return {};
}

void DomainUse::keep(const void *object) {
  if (!state_.sees_base_verbs) return leave();
  const MutexGuard guard(state_.mutex);
  state_.has_domain_shares = true;
  if (node_) {
    state_.domain_shares.insert(std::move(node_));
  } else {
    // One of that address went without our seeing it: its share is lost.
    state_.domain_shares.insert_or_assign(object, share_);
  }
  share_ = {};
}

void DomainUse::take(const void *object) {
  if (!state_.has_domain_shares) [[likely]]
    return;
  const MutexGuard guard(state_.mutex);
  node_ = state_.domain_shares.extract(object);
  if (node_) share_ = node_.mapped();
}

void DomainUse::leave() noexcept {
  if (share_.domain == nullptr) return;
  ibv_pd *unused = nullptr;
  {
    const MutexGuard guard(state_.mutex);
    if (share_.modern_pd != share_.pd) {
      const auto parent = parent_of(*share_.domain, share_.pd);
      // The program may free its protection domain next, which the parent holds.
      if (--parent->uses == 0) {
        unused = parent->parent;
        share_.domain->parents.erase(parent);
      }
    }
  }
  if (unused != nullptr) {
    const KeepErrno keep;
    ibv_dealloc_pd(unused);
  }
  ResDomain *const domain = share_.domain;
  {
    const MutexGuard guard(state_.mutex);
    share_ = {};
    if (--domain->uses != 0 || !domain->destroyed) return;
  }
  const KeepErrno keep;
  if (const int error = domain->td != nullptr ? ibv_dealloc_td(domain->td) : 0; error != 0)
    log(LogLevel::error,
        "ibv_dealloc_td failed (errno %d): the thread domain stays until the device is closed",
        positive(error));
  state_.res_domains.retire(domain);
}

}  // namespace ibvexp::translate
