// Who drives what is about to be created.
#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "translate/queue/beside.h"
#include "translate/queue/driven.h"

namespace ibvexp::queue {

bool is_used(const CqFront &front) noexcept {
  return engine::relaxed(front.own.joined) || front.own.joining != 0 || front.own.ring != nullptr ||
         engine::relaxed(front.legacy.cons_index) != 0;
}

namespace {

bool is_used(const SrqFront &front) {
  return front.own.joined || front.own.joining != 0 || front.own.engine->queue.is_used();
}

// The object is libmlx5's from here on. A thread that is just using it may still see what
// the engine had.
void release(SrqFront &front) {
  front.own.released = front.own.engine;
  front.own.engine = nullptr;
}

// Receives were posted, and no queue pair has taken any: libmlx5 gets them again, into the
// same entries. False: it cannot be done.
bool hand_over(SrqFront &front) {
  if (front.own.joined || front.own.joining != 0) return false;
  engine::SharedQueue &queue = front.own.engine->queue;
  const engine::Guard guard(queue.lock);
  if (!queue.posted) return *queue.counter == 0;
  const auto count = static_cast<std::uint32_t>(queue.counters->head);
  for (std::uint32_t index = 0; index < count; ++index) {
    ibv_sge pieces[engine::max_segments];
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.wr_id = queue.ids[index];
    wr.sg_list = pieces;
    const std::uint8_t *at = queue.scatter(index);
    for (std::uint32_t i = 0; i < std::min(queue.places(), engine::max_segments);
         ++i, at += engine::segment_bytes) {
      const auto length = engine::load_be<std::uint32_t>(at);
      const auto key = engine::load_be<std::uint32_t>(at + 4);
      if (length == 0 && key == engine::no_key) break;
      pieces[wr.num_sge++] = {engine::load_be<std::uint64_t>(at + 8), length, key};
    }
    if (front.own.inner->post_srq_recv(front.own.back, &wr, &bad) != 0) return false;
  }
  queue.counters->head = queue.counters->tail;  // full, for who is late
  return true;
}

// No other thread may release it while something is created that the engine will drive.
template <class Front>
Front *reserve(Front *front) {
  if (front != nullptr) ++front->own.joining;
  return front;
}

}  // namespace

void Joining::decide(ContextState &state, const Ends &ends, ibv_cq **send, ibv_cq **receive,
                     const ibv_srq *srq, By wanted) noexcept {
  CqFront *const sending = ends.send, *const receiving = ends.receive;
  SrqFront *const shared = ends.shared;
  if (shared != nullptr && shared->own.strides != nullptr && wanted == By::libmlx5) {
    log(LogLevel::warn,
        "SRQ %#x has strides (mp_srq): only QPs of ibv_create_qp() can receive from it",
        shared->legacy.srqn);
    error_ = ENOTSUP;
    return;
  }
  const MutexGuard guard(driver_->mutex);
  // Completions that the engine is to have, although libmlx5 has those of others.
  const auto share = [&](CqFront *front) {
    if (front != nullptr && !is_driven(front)) bring_engine(state, *front);
  };
  const bool by_engine = wanted == By::engine;
  const bool shares_both = by_engine && (shared == nullptr || is_driven(shared));
  // Of libmlx5's, in an SRQ that the engine has used.
  const bool is_guest = !by_engine && is_driven(shared) && is_used(*shared);
  if (shares_both) share(sending);
  if (shares_both || is_guest) share(receiving);
  const auto fits = [](const void *object, bool driven) { return object == nullptr || driven; };
  bool receives =
      by_engine && fits(at(receive), is_driven(receiving)) && fits(srq, is_driven(shared));
  const bool sends =
      by_engine && fits(at(send), is_driven(sending)) && (at(send) != at(receive) || receives);
  if (!receives && is_driven(shared)) {
    const bool unused = !is_used(*shared);
    if (!unused && is_driven(receiving)) {
      receives = true;
    } else if (unused || hand_over(*shared)) {
      queue::release(*shared);
    } else {
      log(LogLevel::warn,
          "SRQ %#x: QPs of ibv_create_qp() receive from it: a QP that completes on an ibv_cq_ex "
          "cannot",
          shared->legacy.srqn);
      error_ = ENOTSUP;
      return;
    }
  }
  by_ = {sends ? By::engine : By::libmlx5, receives ? By::engine : By::libmlx5};
  reserves_ = sends || receives;
  if (sends) reserved_[0] = reserve(sending);
  if (receives) {
    reserved_[1] = reserve(receiving);
    reserved_srq_ = reserve(shared);
  }
  const auto find_ring = [&](ibv_cq **at, CqFront *front, bool engine) {
    if (front == nullptr || error_ != 0) return;
    ibv_cq *const ring = engine ? front->own.back : ring_of_libmlx5(state, *front);
    if (ring != nullptr) *at = ring;
    else error_ = errno != 0 ? errno : ENOMEM;
  };
  find_ring(send, sending, sends);
  find_ring(receive, receiving, receives);
}

void Joining::release() noexcept {
  const MutexGuard guard(driver_->mutex);
  for (CqFront *front : reserved_)
    if (front != nullptr) --front->own.joining;
  if (reserved_srq_ != nullptr) --reserved_srq_->own.joining;
}

}  // namespace ibvexp::queue
