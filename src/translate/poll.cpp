// Polling through the provider's own poll_cq. It writes into the front of the
// caller's array, whose elements are larger, and the completions are then moved
// to their places from the last to the first: no buffer of our own, no limit on
// the batch, one lock.
#include "poll.h"

#include "context_state.h"
#include "wc_convert.h"

#include <cerrno>

namespace ibvexp::translate {

namespace {

// One queue pair is behind most of a batch.
class Origins {
 public:
  explicit Origins(ContextState *state) : state_(state) {}

  Origin find(std::uint32_t number) {
    if (number != number_) {
      number_ = number;
      const QpState *known = state_ != nullptr ? state_->qps.find(number) : nullptr;
      origin_ = {};
      if (known != nullptr) origin_ = {known->qp.load(std::memory_order_relaxed), known->srq};
    }
    return origin_;
  }

 private:
  ContextState *state_;
  std::uint32_t number_ = ~0u;  // no queue pair has it
  Origin origin_{};
};

}  // namespace

Result<int> poll_cq(ibv_cq *cq, int num_entries, ibv_exp_wc *wc, std::uint32_t wc_size) {
  // No release had a smaller one than 88. The head of 48 bytes is ibv_wc.
  if (wc_size < sizeof(ibv_wc)) [[unlikely]]
    return Error{EINVAL};

  const int count = cq->context->ops.poll_cq(cq, num_entries, reinterpret_cast<ibv_wc *>(wc));
  if (count <= 0) {
    if (count < 0) return Error{EIO};
    return 0;
  }

  Origins origins(find_state(cq->context));
  const bool to_3x_or_4_0 = wc_size == wc_size_4_0;
  char *base = reinterpret_cast<char *>(wc);
  for (std::size_t i = static_cast<std::size_t>(count); i-- > 0;) {
    ibv_wc modern;
    std::memcpy(&modern, base + i * sizeof(modern), sizeof(modern));
    store(to_legacy(modern, origins.find(modern.qp_num), to_3x_or_4_0), base + i * wc_size,
          wc_size);
  }
  return count;
}

}  // namespace ibvexp::translate
