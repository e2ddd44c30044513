#include "context_state.h"

#include "feature_bits.h"
#include "options.h"

namespace ibvexp {

namespace {

std::uint64_t refused_flags() {
  std::uint64_t refused = 0;
  for (const FeatureBit &b : bits_of<"ibv_exp_send_flags">())
    if (effective_now(row(b.id).answer).verdict == Verdict::unsupported) refused |= b.bit;
  return refused;
}

}  // namespace

const char ContextState::identity = 0;

ContextState::ContextState(ibv_context *of)
    : context(of), refused_send_flags(refused_flags()) {}

const ibv_device_attr &ContextState::device() {
  std::call_once(device_asked_, [this] {
    if (ibv_query_device(context, &device_) != 0) device_ = {};
  });
  return device_;
}

}  // namespace ibvexp
