#include "translate/state/context_state.h"

#include "table/feature_bits.h"
#include "table/feature_rows.h"
#include "table/options.h"

namespace ibvexp {

namespace {

std::uint64_t refused_flags() {
  std::uint64_t refused = 0;
  for (const FeatureBit &b : bits_of<"ibv_exp_send_flags">())
    if (effective_now(feature_row(b.id).answer).verdict == Verdict::unsupported) refused |= b.bit;
  return refused;
}

}  // namespace

const char ContextState::identity = 0;

ContextState::ContextState(ibv_context *of)
    : context(of),
      refused_send_flags(refused_flags()),
      native{of->ops.post_send, of->ops.poll_cq, of->ops.bind_mw} {}

const ibv_device_attr &ContextState::ask_for_device() {
  static constexpr ibv_device_attr nothing{};
  ibv_device_attr asked{};
  if (ibv_query_device(context, &asked) != 0) return nothing;  // the next call asks again
  const MutexGuard guard(device_mutex_);
  if (!device_known_.load(std::memory_order_relaxed)) {
    device_ = asked;
    device_known_.store(true, std::memory_order_release);
  }
  return device_;
}

CqState &enter_cq(ContextState &state, ibv_cq *cq) {
  // A handle that is taken was freed without our seeing it: its state goes back.
  CqState *stale = state.cqs.find(cq->handle);
  state.has_cq_states = true;
  CqState &fresh = state.cq_pool.take();
  try {
    state.cqs.set(cq->handle, &fresh);
  } catch (...) {
    state.cq_pool.give_back(fresh);
    throw;
  }
  fresh.cq.store(cq, std::memory_order_relaxed);
  if (stale != nullptr) state.cq_pool.give_back(*stale);
  return fresh;
}

}  // namespace ibvexp
