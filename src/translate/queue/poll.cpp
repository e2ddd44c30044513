#include "translate/queue/poll.h"

#include <cerrno>

#include "trace/diagnose.h"

namespace ibvexp::translate {

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
        const auto taken = native::poll_cq(cq, wanted, place(done), wc_size);
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

}  // namespace ibvexp::translate
