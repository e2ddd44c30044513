// Taking completions.
#pragma once

#include <infiniband/verbs_exp.h>

#include <cstdint>

#include "base/result.h"
#include "translate/queue/beside.h"
#include "translate/queue/engine/completion_queue.h"
#include "translate/queue/front.h"
#include "translate/queue/native/poll.h"

namespace ibvexp::translate {

// There is nowhere to put completions: an error, unless there are none.
Result<int> refuse_room(ibv_cq *cq, int num_entries, const ibv_exp_wc *wc, std::uint32_t wc_size);

// What most calls come to: the engine's queue, or null, and its answer, which is
// negative for an errno value.
[[gnu::always_inline]] inline engine::CompletionQueue *driven_queue(ibv_cq *cq, int,
                                                                    const ibv_exp_wc *wc,
                                                                    std::uint32_t) {
  const queue::CqFront *front = queue::front_of(cq);
  return front != nullptr && wc != nullptr ? front->own.alone : nullptr;
}
[[gnu::always_inline]] inline int run(engine::CompletionQueue &queue, ibv_cq *, int num_entries,
                                      ibv_exp_wc *wc, std::uint32_t wc_size) {
  return engine::poll(queue, num_entries, wc, wc_size);
}
inline Error refuse(int error, const ibv_cq *) { return {-error}; }

// Polls a queue with another one beside the engine's.
Result<int> poll_both(queue::CqFront &front, int num_entries, ibv_exp_wc *wc,
                      std::uint32_t wc_size);

// cq: the program's.
[[gnu::always_inline]] inline Result<int> poll_cq(ibv_cq *cq, int num_entries, ibv_exp_wc *wc,
                                                  std::uint32_t wc_size) {
  // No release had a smaller one than 88. The head of 48 bytes is ibv_wc.
  if (wc_size < sizeof(ibv_wc) || wc == nullptr) [[unlikely]]
    return refuse_room(cq, num_entries, wc, wc_size);

  if (queue::CqFront *front = queue::front_of(cq)) [[likely]] {
    if (engine::CompletionQueue *queue = front->own.alone) [[likely]] {
      const int count = engine::poll(*queue, num_entries, wc, wc_size);
      if (count < 0) [[unlikely]]
        return Error{-count};
      return count;
    }
    cq = queue::ring_of_libmlx5_alone(*front);
    if (cq == nullptr) return poll_both(*front, num_entries, wc, wc_size);
  }
  return native::poll_cq(cq, num_entries, wc, wc_size);
}

}  // namespace ibvexp::translate
