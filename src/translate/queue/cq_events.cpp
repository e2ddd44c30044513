#include "translate/queue/cq_events.h"

#include <pthread.h>

#include "base/real.h"
#include "translate/queue/beside.h"

namespace ibvexp::queue {

namespace {

constexpr std::uint64_t going = std::uint64_t{1} << 63;

// The mutex of rdma-core's object. ibv_destroy_cq() waits for the counts that it protects and
// frees the object: nothing is touched after the last unlock.
class Behind {
 public:
  explicit Behind(ibv_cq &cq) : cq_(cq) { pthread_mutex_lock(&cq_.mutex); }
  Behind(const Behind &) = delete;
  Behind &operator=(const Behind &) = delete;
  ~Behind() { pthread_mutex_unlock(&cq_.mutex); }

  // of_front: how many more of the front's count are known there, but for those of another
  // object.
  void add(CqFront &front, unsigned of_front, unsigned of_other) {
    cq_.comp_events_completed += of_front - of_other;
    front.own.settled += of_front;
    pthread_cond_signal(&cq_.cond);
  }

 private:
  ibv_cq &cq_;
};

}  // namespace

bool acknowledge_late(CqFront &front, unsigned count) noexcept {
  ibv_cq *const back = front.own.back;
  if (back == nullptr) return false;
  Behind(*back).add(front, count, 0);
  return true;
}

bool acknowledge_both(CqFront &front, unsigned count) noexcept {
  ibv_cq *const back = front.own.back;
  if (back == nullptr) return false;
  const auto [of_beside, beside] = take_events(front, count, Event::completion);
  {
    Behind known(*back);
    add_completed(front, count);
    known.add(front, count, of_beside);
  }
  if (beside != nullptr) real().ibv_ack_cq_events(beside, of_beside);
  return true;
}

void settle_events(CqFront &front) noexcept {
  Behind known(*front.own.back);
  const auto completed = static_cast<std::uint32_t>(
      __atomic_fetch_or(&events_completed(front), going, __ATOMIC_ACQ_REL));
  known.add(front, completed - front.own.settled, 0);
}

void unsettle_events(CqFront &front) noexcept {
  __atomic_fetch_and(&events_completed(front), ~going, __ATOMIC_RELEASE);
}

}  // namespace ibvexp::queue
