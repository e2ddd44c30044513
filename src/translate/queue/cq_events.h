// Completion events that a program takes and acknowledges, of a front.
//
// Acknowledged ones are counted where the program sees the count, without a lock. rdma-core's
// object gets the count when it goes: ibv_destroy_cq() waits until all events that were
// reported are acknowledged.
#pragma once

#include "translate/queue/front.h"

namespace ibvexp::queue {

using EventsCompleted [[gnu::may_alias]] = std::uint64_t;

// comp_events_completed, and above it async_events_completed, whose highest bit is set while
// the object is being destroyed.
inline EventsCompleted &events_completed(CqFront &front) noexcept {
  static_assert(offsetof(ibv_cq, comp_events_completed) % 8 == 0 &&
                offsetof(ibv_cq, async_events_completed) ==
                    offsetof(ibv_cq, comp_events_completed) + 4);
  return *reinterpret_cast<EventsCompleted *>(&front.shown.comp_events_completed);
}

// Adds to comp_events_completed alone. False: the object is being destroyed.
[[gnu::always_inline]] inline bool add_completed(CqFront &front, unsigned count) noexcept {
  const std::uint64_t before =
      __atomic_fetch_add(&events_completed(front), count, __ATOMIC_ACQ_REL);
  if (static_cast<std::uint32_t>(before) + count < count) [[unlikely]]
    __atomic_fetch_sub(&events_completed(front), std::uint64_t{1} << 32, __ATOMIC_RELAXED);
  return static_cast<std::int64_t>(before) >= 0;
}

// The rest of acknowledge(): while the object is being destroyed, where the count is added
// already; and where a queue of libmlx5's has reported some of the events.
bool acknowledge_late(CqFront &front, unsigned count) noexcept;
bool acknowledge_both(CqFront &front, unsigned count) noexcept;

// ibv_ack_cq_events(). False: the object is gone.
[[gnu::always_inline]] inline bool acknowledge(CqFront &front, unsigned count) noexcept {
  if (engine::relaxed(front.own.unacknowledged[0]) != 0) [[unlikely]]
    return acknowledge_both(front, count);
  return add_completed(front, count) ? true : acknowledge_late(front, count);
}

// Before rdma-core's object is destroyed: it gets the count, and from then on each event as it
// is acknowledged. And when it has not been destroyed after all.
void settle_events(CqFront &front) noexcept;
void unsettle_events(CqFront &front) noexcept;

}  // namespace ibvexp::queue
