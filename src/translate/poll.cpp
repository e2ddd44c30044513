// Polling through the provider's own poll_cq. It writes into the front of the
// caller's array, whose elements are larger, and the completions are then moved
// to their places from the last to the first: no buffer of our own, no limit on
// the batch, one lock.
#include "poll.h"

#include "origin.h"

#include <cerrno>

namespace ibvexp::translate {

Result<int> poll_cq(ibv_cq *cq, int num_entries, ibv_exp_wc *wc, std::uint32_t wc_size) {
  // No release had a smaller one than 88. The head of 48 bytes is ibv_wc.
  if (wc_size < sizeof(ibv_wc)) [[unlikely]]
    return Error{EINVAL};

  ContextState *state = find_state(cq->context);
  CqState *own = find_cq(state, cq);
  if (own != nullptr) [[unlikely]] {
    if (const CqPoll poll = own->poll.load(std::memory_order_relaxed))
      return poll(*state, *own, cq, num_entries, wc, wc_size);
  }

  const int count = cq->context->ops.poll_cq(cq, num_entries, reinterpret_cast<ibv_wc *>(wc));
  if (count <= 0) {
    if (count < 0) return Error{EIO};
    return 0;
  }

  Origins origins(state, own);
  const bool to_3x_or_4_0 = wc_size == wc_size_4_0;
  char *base = reinterpret_cast<char *>(wc);
  for (std::size_t i = static_cast<std::size_t>(count); i-- > 0;) {
    ibv_wc modern;
    std::memcpy(&modern, base + i * sizeof(modern), sizeof(modern));
    store(to_legacy(modern, origins.find(modern), to_3x_or_4_0), base + i * wc_size,
          wc_size);
  }
  return count;
}

}  // namespace ibvexp::translate
