// The provider writes into the front of the caller's array, whose elements are
// larger, and the completions are then moved to their places from the last to the
// first: no buffer of our own, no limit on the batch, one lock.
#include "translate/queue/poll.h"

#include "trace/diagnose.h"
#include "translate/queue/origin.h"

namespace ibvexp::translate {

namespace {

// Moves the first count completions, whatever they are.
[[gnu::noinline]] void move_any(ContextState &state, const CqState *own, int count, ibv_exp_wc *wc,
                                std::uint32_t wc_size) {
  Origins origins(&state, own);
  const bool to_3x_or_4_0 = wc_size == wc_size_4_0;
  const ibv_wc *from = reinterpret_cast<const ibv_wc *>(wc) + count;
  char *at = reinterpret_cast<char *>(wc) + static_cast<std::size_t>(count) * wc_size;
  for (; count > 0; --count) {
    ibv_wc modern;
    std::memcpy(&modern, --from, sizeof(modern));
    at -= wc_size;
    store(to_legacy(modern, origins.find(modern), to_3x_or_4_0), at, wc_size);
  }
}

// From the last on as long as they are plain. Returns how many are left.
template <std::uint32_t wc_size>
int move_all_plain(const ContextState &state, const CqState *own, int count, ibv_exp_wc *wc) {
  const ibv_wc *from = reinterpret_cast<const ibv_wc *>(wc) + count;
  char *at = reinterpret_cast<char *>(wc) + static_cast<std::size_t>(count) * wc_size;
  std::uint32_t number = ~0u;  // no queue pair has it
  PlainOrigin origin;
  for (; count > 0; --count) {
    --from;
    if (from->qp_num != number) {
      number = from->qp_num;
      origin = {state, own, number};
    }
    if (!move_plain<wc_size>(*from, origin, at -= wc_size)) break;
  }
  return count;
}

}  // namespace

Result<int> poll_both(queue::CqFront &front, int num_entries, ibv_exp_wc *wc,
                      std::uint32_t wc_size) {
  const auto place = [&](int done) {
    return reinterpret_cast<ibv_exp_wc *>(reinterpret_cast<char *>(wc) +
                                          static_cast<std::size_t>(done) * wc_size);
  };
  const int count = queue::take_from_both(
      front, num_entries,
      [&](int wanted, int done) {
        return engine::poll(*front.own.engine, wanted, place(done), wc_size);
      },
      [&](ibv_cq *cq, int wanted, int done) {
        const auto taken = poll_native(cq, wanted, place(done), wc_size);
        return taken ? taken.value() : -taken.error();
      });
  if (count < 0) return Error{-count};
  return count;
}

Result<int> refuse_room(ibv_cq *cq, int num_entries, const ibv_exp_wc *wc, std::uint32_t wc_size) {
  if (num_entries < 1) return 0;
  if (const queue::CqFront *front = queue::front_of(cq))
    if (front->own.engine != nullptr && front->own.engine->is_empty()) return 0;
  const Error error = wc == nullptr ? invalid(EntryId::ibv_exp_poll_cq, "wc", 0, "must not be null")
                                    : invalid(EntryId::ibv_exp_poll_cq, "wc_size", wc_size,
                                              "less than struct ibv_wc has");
  errno = error.code;
  return error;
}

void move_completions(ContextState &state, const CqState *own, int count, ibv_exp_wc *wc,
                      std::uint32_t wc_size) {
  if (wc_size == wc_size_4_1) count = move_all_plain<wc_size_4_1>(state, own, count, wc);
  else if (wc_size == wc_size_4_0) count = move_all_plain<wc_size_4_0>(state, own, count, wc);
  if (count > 0) move_any(state, own, count, wc, wc_size);
}

}  // namespace ibvexp::translate
