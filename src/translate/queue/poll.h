// Taking completions.
#pragma once

#include "base/result.h"
#include "translate/queue/beside.h"
#include "translate/queue/engine/completion_queue.h"
#include "translate/queue/front.h"
#include "translate/convert/wc_plain_convert.h"
#include "translate/state/context_state.h"

#include <infiniband/verbs_exp.h>

#include <cerrno>
#include <cstdint>

namespace ibvexp::translate {

// What the plain completions of a queue pair have in common.
struct PlainOrigin {
  ibv_qp *qp = nullptr;  // null: none is plain
  ibv_srq *srq = nullptr;
  bool receives = false;  // receives may be plain too

  PlainOrigin() = default;
  // In a queue that has frames the number may be a flow tag.
  PlainOrigin(const ContextState &state, const CqState *own, std::uint32_t number) {
    if (const QpState *known = state.qps.find(number)) [[likely]] {
      qp = known->shown.load(std::memory_order_relaxed);
      srq = known->srq;
      receives = known->dct == nullptr &&
                 (own == nullptr || !own->has_raw.load(std::memory_order_relaxed));
    }
  }
};

// Moves one completion to its place if it is plain. Returns whether it was.
template <std::uint32_t wc_size>
[[gnu::always_inline]] inline bool move_plain(const ibv_wc &from, const PlainOrigin &of, void *at) {
  if (from.status != IBV_WC_SUCCESS || of.qp == nullptr) return false;
  if (is_plain_send(from)) plain_send_to_legacy<wc_size>(from, of.qp, at);
  else if (of.receives && is_plain_receive(from))
    plain_receive_to_legacy<wc_size>(from, of.qp, of.srq, at);
  else return false;
  return true;
}

// Moves the completions that the provider has written into the front of the
// caller's array to their places.
void move_completions(ContextState &state, const CqState *own, int count, ibv_exp_wc *wc,
                      std::uint32_t wc_size);

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

// Of rdma-core's queue: through the provider's own poll_cq. One plain completion stays
// where it is.
[[gnu::always_inline]] inline Result<int> poll_native(ibv_cq *cq, int num_entries, ibv_exp_wc *wc,
                                                      std::uint32_t wc_size) {
  ContextState *state = attached(cq->context);
  CqState *own = find_cq(state, cq);
  if (own != nullptr) {
    if (const CqPoll poll = own->poll.load(std::memory_order_relaxed)) [[unlikely]]
      return poll(*state, *own, cq, num_entries, wc, wc_size);
  }

  ibv_wc *first = reinterpret_cast<ibv_wc *>(wc);
  const int count = state->operations().poll_cq(cq, num_entries, first);
  if (count == 1 && wc_size == wc_size_4_1) [[likely]] {
    if (move_plain<wc_size_4_1>(*first, {*state, own, first->qp_num}, wc)) [[likely]]
      return 1;
  }
  if (count > 0) move_completions(*state, own, count, wc, wc_size);
  if (count < 0) return Error{EIO};
  return count;
}

// Of a queue with another one beside the engine's.
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
  return poll_native(cq, num_entries, wc, wc_size);
}

}  // namespace ibvexp::translate
