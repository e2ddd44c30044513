// What the library keeps for each ibv_context: found from the context by the
// arithmetic of the legacy header, without a map and without a lock.
//
// The state lies directly below the operation table that src/exp attaches, so
// that the table's address gives the state's.
#pragma once

#include <infiniband/verbs_exp.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "base/flag.h"
#include "base/keep_errno.h"
#include "base/lock.h"
#include "base/number_table.h"
#include "translate/state/calculation.h"
#include "translate/state/cq_state.h"
#include "translate/state/native.h"
#include "translate/state/objects.h"
#include "translate/state/qp_state.h"
#include "translate/state/work_queue.h"

struct mlx5dv_devx_uar;

namespace ibvexp {

namespace queue {
struct Driver;
}
namespace translate {
struct DeviceFacts;
struct TargetEvents;
}  // namespace translate

// Memory that a region was given by us, to be unmapped when it goes.
struct OwnedMemory {
  void *address;
  std::size_t length;
  int file = -1;             // that shares it (verbs/shared_region.h); -1: none does
  std::uint32_t handle = 0;  // of the region then
};

using NativePost = decltype(ibv_context_ops::post_send);
using NativePoll = decltype(ibv_context_ops::poll_cq);
using NativeBind = decltype(ibv_context_ops::bind_mw);

// The process has had memory regions of ours: with memory of ours, or indirect keys.
inline Flag special_regions{false};

struct ContextState {
  explicit ContextState(ibv_context *of);

  ibv_context *const context;

  // Flags of a work request that are refused, whatever its opcode.
  const std::uint64_t refused_send_flags;

  // The provider's data path. The operations lead to queue/native/hooks.h once a queue pair
  // is on libmlx5's builders.
  const struct {
    NativePost post_send;
    NativePoll poll_cq;
    NativeBind bind_mw;
  } native;
  bool hooked = false;

  // A verb that is nothing but a command has more to do: to put cancellation off, which could act in
  // the command, or to write a line of the log.
  Flag watched{true};
  std::atomic<bool> watched_decided{false};

  // Null: programs hold rdma-core's objects.
  std::unique_ptr<NativeOperations> behind;

  // The engine's part (queue/driven.h). Null: libmlx5 has the data path.
  std::shared_ptr<queue::Driver> driver;

  // What is called with rdma-core's objects.
  ibv_context_ops &operations() { return behind != nullptr ? behind->data : context->ops; }

  // The provider's operations of shared receive queues; null until there is one of legacy XRC. The
  // context's own pointers then lead to xrc_srq.h.
  struct {
    decltype(ibv_context_ops::post_srq_recv) post_recv;
    decltype(verbs_context::get_srq_num) get_number;
  } native_srq{};

  // Whether the program's base verbs come through this library: it opened the
  // context by one.
  bool sees_base_verbs = false;

  // Whether the program has called an experimental verb, or used a number of the legacy API. Until
  // then the base verbs grant what rdma-core grants, and from then on what the legacy provider did.
  Flag is_legacy{false};

  // What verbs/device.cpp knows of the device, from the first query on.
  std::shared_ptr<const translate::DeviceFacts> device_facts;
  std::atomic<const translate::DeviceFacts *> known_device{nullptr};

  // Limits of the device, asked for at the first call. Zeros if it does not
  // answer.
  const ibv_device_attr &device() { return knows_device() ? device_ : ask_for_device(); }
  bool knows_device() const { return device_known_.load(std::memory_order_acquire); }

  // Queue pairs by number. Entries come and go with the queue pair; the states
  // themselves stay until the context closes, so that a poller that races with
  // a destruction reads an old value, not freed memory.
  NumberTable<QpState> qps;
  QpPool qp_pool;

  // Completion queues that need more than the provider does, by kernel handle.
  NumberTable<CqState> cqs;
  CqPool cq_pool;

  // Indirect memory keys by index, the upper 24 bits of the key.
  NumberTable<IndirectKey> keys;

  // What most contexts never have: while it is false, the mutex need not be taken to look.
  Flag has_environment{false}, has_domain_shares{false}, has_cq_states{false};
  Flag targets_by_command{false};  // there are, or have been

  // Whether an object may be in use by what rdma-core does not know of.
  bool has_dependents() const { return has_domain_shares || targets_by_command; }

  // Everything below, and changes to the above. Never held across a call into
  // rdma-core.
  Mutex mutex;
  std::unordered_map<const ibv_mr *, OwnedMemory> owned_memory;
  std::map<std::string, std::string> environment;
  std::unordered_map<const void *, unsigned> families;  // obtained, and how often
  Handles<translate::WorkQueue> work_queues;
  Handles<translate::IndirectionTable> rwq_tables;
  Handles<FlowRule> flow_rules;
  Retired<OwnedKey> retired_keys;
  Handles<DcTarget> targets;
  std::uint64_t last_target = 0;                           // serial number
  std::shared_ptr<translate::TargetEvents> target_events;  // null until the program waits for them
  mlx5dv_devx_uar *channel_page = nullptr;                 // that masters ring
  Handles<DeviceMemory> device_memory;
  Handles<ibv_srq_legacy> legacy_srqs;
  Handles<KeyListMemory> key_lists;
  Handles<Calculation> calculations;
  Handles<ResDomain> res_domains;
  // Shares of the objects that were created with a resource domain.
  std::unordered_map<const void *, DomainShare> domain_shares;

  // Distinguishes our tables from those of another copy of the library.
  const void *const owner = &identity;
  static const char identity;

 private:
  const ibv_device_attr &ask_for_device();

  std::atomic<bool> device_known_{false};
  Mutex device_mutex_;
  ibv_device_attr device_{};
};

// The state of an attached context, or null.
inline ContextState *find_state(ibv_context *context) noexcept {
  verbs_context_exp *table = verbs_get_exp_ctx(context);
  if (table == nullptr) return nullptr;
  auto *state = reinterpret_cast<ContextState *>(table) - 1;
  return state->owner == &ContextState::identity ? state : nullptr;
}

// The same, in calls that came through our table or through boundary.h, which
// has looked: never null.
inline ContextState *attached(ibv_context *context) noexcept {
  const auto *words = reinterpret_cast<const ibvexp_context_words *>(context) - 1;
  const std::uintptr_t table_end =
      reinterpret_cast<std::uintptr_t>(context) - (words->sz - sizeof(ibv_context));
  auto *state = reinterpret_cast<ContextState *>(table_end - sizeof(verbs_context_exp)) - 1;
  if (state == nullptr) __builtin_unreachable();
  return state;
}

// The state of a queue pair that we saw being created, or null.
inline QpState *find_qp(ContextState *state, const ibv_qp *qp) noexcept {
  QpState *found = state != nullptr ? state->qps.find(qp->qp_num) : nullptr;
  return found != nullptr && found->qp.load(std::memory_order_relaxed) == qp ? found : nullptr;
}

// The state of a completion queue that has one, or null.
inline CqState *find_cq(ContextState *state, const ibv_cq *cq) noexcept {
  if (state == nullptr || !state->has_cq_states) return nullptr;
  CqState *found = state->cqs.find(cq->handle);
  return found != nullptr && found->cq.load(std::memory_order_relaxed) == cq ? found : nullptr;
}

// The key behind a region, or null if ibv_exp_create_mr() did not make it. Takes
// no lock.
inline IndirectKey *find_key(const ContextState *state, const ibv_mr *mr) noexcept {
  IndirectKey *found = state != nullptr ? state->keys.find(mr->lkey >> 8) : nullptr;
  return found != nullptr && &found->mr == mr ? found : nullptr;
}

// A state for a new completion queue. The caller holds the mutex. Throws bad_alloc.
CqState &enter_cq(ContextState &state, ibv_cq *cq);

// The state of a completion queue as above, made if there is none.
inline CqState &need_cq(ContextState &state, ibv_cq *cq) {
  CqState *const known = find_cq(&state, cq);
  return known != nullptr ? *known : enter_cq(state, cq);
}

}  // namespace ibvexp
