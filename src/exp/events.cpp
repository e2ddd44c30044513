// Asynchronous events, with the objects that the program knows.
#include <pthread.h>
#include <rdma/ib_user_verbs.h>
#include <unistd.h>

#include "base/real.h"
#include "table/options.h"
#include "translate/queue/beside.h"
#include "translate/verbs/target_events.h"
#include "translate/verbs/xrc.h"
#include "translate/verbs/xrc_srq.h"

namespace ibvexp {

namespace {

enum class Names : std::uint8_t { port, qp, cq, srq, wq };

// Which member of the element an event sets.
Names named_by(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_CQ_ERR: return Names::cq;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED: return Names::qp;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED: return Names::srq;
    case IBV_EVENT_WQ_FATAL: return Names::wq;
    default: return Names::port;
  }
}

[[gnu::noinline]] bool show_cq(ibv_async_event &event) noexcept {
  queue::CqFront *const front = queue::before(event.element.cq);
  if (front == nullptr) return false;
  queue::count_event(*front, event.element.cq, queue::Event::asynchronous);
  event.element.cq = &front->shown;
  return true;
}

// The same for objects with a front. False: it has none.
[[gnu::always_inline]] inline bool show_front(ibv_async_event &event, Names what) noexcept {
  if (what == Names::qp) {
    if (auto *front = queue::before(event.element.qp)) {
      event.element.qp = &front->shown;
      return true;
    }
  } else if (what == Names::srq) {
    if (auto *front = queue::before(event.element.srq)) {
      event.element.srq = front->own.held;
      return true;
    }
  }
  return what == Names::cq && show_cq(event);
}

// Puts the program's object into the event, in place of rdma-core's.
void show_object(ibv_context *context, ibv_async_event &event, Names what) noexcept {
  if (show_front(event, what)) return;
  ContextState *const state = find_state(context);
  if (state == nullptr) return;
  if (what == Names::qp) translate::show_xrc_receiver(event);
  else if (what == Names::srq) translate::show_srq(*state, event);
}

// Counts for the program's object. Before rdma-core's is counted: a destroy may wait for that one,
// and frees the program's object then.
void count(std::uint32_t &events) noexcept { __atomic_fetch_add(&events, 1, __ATOMIC_RELAXED); }

// What ibv_ack_async_event() does with rdma-core's object.
template <class Object>
void acknowledge(Object &back, std::uint32_t Object::*completed) noexcept {
  pthread_mutex_lock(&back.mutex);
  ++(back.*completed);
  pthread_cond_signal(&back.cond);
  pthread_mutex_unlock(&back.mutex);
}

[[gnu::noinline]] int get_of_rdma_core(ibv_context *context, ibv_async_event *event) noexcept {
  const int error = real().ibv_get_async_event(context, event);
  if (error == 0) show_object(context, *event, named_by(event->event_type));
  return error;
}

// An event of an object without a front, or of the device.
[[gnu::noinline]] int take_other(ibv_context *context, ibv_async_event *event) noexcept {
  const Names what = named_by(event->event_type);
  // The kernel's element is a number of 64 bits.
  if (what == Names::port)
    event->element.port_num = static_cast<int>(reinterpret_cast<std::uintptr_t>(event->element.qp));
  // The provider's handler of events, in the slot that rdma-core keeps for old programs.
  using Provider = void (*)(ibv_context *, ibv_async_event *);
  const auto provider =
      reinterpret_cast<Provider>(reinterpret_cast<void (*)()>(context->ops._compat_async_event));
  provider(context, event);
  show_object(context, *event, what);
  return 0;
}

// An event that the kernel has in the context's file.
[[gnu::always_inline]] inline int take_event(ibv_context *context, ibv_async_event *event) {
  if (context->ops._compat_async_event == nullptr) [[unlikely]]
    return get_of_rdma_core(context, event);
  // Read here as in rdma-core, which would look at the type once more. The kernel's structure is
  // the program's, with a member of the kernel's in the place of padding.
  static_assert(sizeof(*event) == sizeof(ib_uverbs_async_event_desc) &&
                sizeof(event->element) == sizeof(ib_uverbs_async_event_desc::element) &&
                offsetof(ibv_async_event, event_type) ==
                    offsetof(ib_uverbs_async_event_desc, event_type));
  if (read(context->async_fd, event, sizeof(*event)) != sizeof(*event)) return -1;
  // libmlx5, which is behind all fronts, does nothing with events of objects.
  return show_front(*event, named_by(event->event_type)) ? 0 : take_other(context, event);
}

[[gnu::noinline]] int take_event_of_any(ibv_context *context, ibv_async_event *event) {
  if (ContextState *const state = find_state(context))
    return translate::next_event(*state, *event, take_event);
  return take_event(context, event);
}

void acknowledge(queue::SrqFront &front) noexcept {
  count(front.shown.events_completed);
  acknowledge(*front.own.back, &ibv_srq::events_completed);
}

// An event of an object without a front.
[[gnu::noinline]] void acknowledge_other(const ibv_async_event &event, Names what) noexcept {
  ibv_async_event behind = event;
  if (what == Names::srq && translate::is_legacy(event.element.srq)) {
    auto &legacy = *reinterpret_cast<ibv_srq_legacy *>(event.element.srq);
    count(legacy.events_completed);
    behind.element.srq = static_cast<ibv_srq *>(legacy.ibv_srq);
    if (auto *front = queue::front_of(behind.element.srq)) return acknowledge(*front);
  }
  if (what == Names::port && translate::is_of_target(event))
    return translate::acknowledge_target(event);
  real().ibv_ack_async_event(&behind);
}

}  // namespace

}  // namespace ibvexp

using namespace ibvexp;

#define IBVEXP_INTERPOSED extern "C" [[gnu::visibility("default")]]

// A point of cancellation.
IBVEXP_INTERPOSED int ibv_get_async_event(ibv_context *context, ibv_async_event *event) {
  if (switched_on(Beyond::key_violations)) [[unlikely]]
    return take_event_of_any(context, event);
  return take_event(context, event);
}

IBVEXP_INTERPOSED void ibv_ack_async_event(ibv_async_event *event) {
  const Names what = named_by(event->event_type);
  if (what == Names::qp) {
    if (auto *front = queue::front_of(event->element.qp)) {
      count(front->shown.events_completed);
      return acknowledge(*front->own.back, &ibv_qp::events_completed);
    }
  } else if (what == Names::srq) {
    if (auto *front = queue::front_of(event->element.srq)) return acknowledge(*front);
  } else if (what == Names::cq) {
    if (auto *front = queue::front_of(event->element.cq)) {
      count(front->shown.async_events_completed);
      ibv_cq *const beside = queue::take_events(*front, 1, queue::Event::asynchronous).second;
      return acknowledge(beside != nullptr ? *beside : *front->own.back,
                         &ibv_cq::async_events_completed);
    }
  }
  acknowledge_other(*event, what);
}
