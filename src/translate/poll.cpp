// Polling through the provider's own poll_cq. It writes into the front of the
// caller's array, whose elements are larger, and the completions are then moved
// to their places from the last to the first: no buffer of our own, no limit on
// the batch, one lock.
#include "poll.h"

#include "origin.h"

#include <cerrno>

namespace ibvexp::translate {

namespace {

// Whatever it is. Out of line, to keep the common case small.
[[gnu::noinline]] void convert(const ibv_wc &from, Origins &origins, char *at,
                               std::uint32_t wc_size) {
  store(to_legacy(from, origins.find(from), wc_size == wc_size_4_0), at, wc_size);
}

}  // namespace

Result<int> poll_cq(ibv_cq *cq, int num_entries, ibv_exp_wc *wc, std::uint32_t wc_size) {
  // No release had a smaller one than 88. The head of 48 bytes is ibv_wc.
  if (wc_size < sizeof(ibv_wc)) [[unlikely]]
    return Error{EINVAL};

  ContextState *state = attached(cq->context);
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
  const bool in_place = wc_size >= sizeof(ibv_exp_wc) && wc_size % alignof(ibv_exp_wc) == 0;
  std::uint32_t number = ~0u;  // no queue pair has it
  ibv_qp *qp = nullptr;
  const ibv_wc *from = reinterpret_cast<const ibv_wc *>(wc) + count;
  char *at = reinterpret_cast<char *>(wc) + static_cast<std::size_t>(count) * wc_size;
  for (int left = count; left > 0; --left) {
    ibv_wc modern;
    std::memcpy(&modern, --from, sizeof(modern));
    at -= wc_size;
    if (in_place && modern.status == IBV_WC_SUCCESS && !is_receive(modern.opcode)) [[likely]] {
      if (modern.qp_num != number) {
        number = modern.qp_num;
        const QpState *known = state->qps.find(number);
        qp = known != nullptr ? known->qp.load(std::memory_order_relaxed) : nullptr;
      }
      send_to_legacy(modern, qp, *reinterpret_cast<ibv_exp_wc *>(at));
    } else {
      convert(modern, origins, at, wc_size);
    }
  }
  return count;
}

}  // namespace ibvexp::translate
