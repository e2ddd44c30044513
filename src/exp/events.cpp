#include "exp/events.h"

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

// What the program knows, for what rdma-core names.
[[gnu::always_inline]] inline void show_object(ibv_context *context, ibv_async_event &event,
                                               Names what) noexcept {
  switch (what) {
    case Names::qp:
      if (auto *front = queue::before(event.element.qp)) event.element.qp = &front->shown;
      else if (find_state(context) != nullptr) translate::show_xrc_receiver(event);
      break;
    case Names::cq:
      if (auto *front = queue::before(event.element.cq)) {
        queue::count_event(*front, event.element.cq, queue::Event::asynchronous);
        event.element.cq = &front->shown;
      }
      break;
    case Names::srq:
      if (auto *front = queue::before(event.element.srq)) event.element.srq = front->own.held;
      else if (ContextState *state = find_state(context)) translate::show_srq(*state, event);
      break;
    case Names::wq:
    case Names::port: break;
  }
}

// Of the program's object, counted before rdma-core's is: a destroy may wait for that, and frees
// the object then.
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

// An event that the kernel has in the context's file.
[[gnu::always_inline]] inline int take_event(ibv_context *context, ibv_async_event *event) {
  // What the provider does with an event: rdma-core keeps it where programs of old find it.
  using Provider = void (*)(ibv_context *, ibv_async_event *);
  const auto provider =
      reinterpret_cast<Provider>(reinterpret_cast<void (*)()>(context->ops._compat_async_event));
  if (provider == nullptr) [[unlikely]]
    return get_of_rdma_core(context, event);
  // Read here as in rdma-core, which would look at the type once more.
  ib_uverbs_async_event_desc from;
  if (read(context->async_fd, &from, sizeof(from)) != sizeof(from)) return -1;
  event->event_type = static_cast<ibv_event_type>(from.event_type);
  const Names what = named_by(event->event_type);
  if (what == Names::port) event->element.port_num = static_cast<int>(from.element);
  else event->element.qp = reinterpret_cast<ibv_qp *>(from.element);
  provider(context, event);
  show_object(context, *event, what);
  return 0;
}

}  // namespace

int get_async_event(ibv_context *context, ibv_async_event *event) {
  if (switched_on(Beyond::key_violations)) [[unlikely]]
    if (ContextState *const state = find_state(context))
      return translate::next_event(*state, *event, take_event);
  return take_event(context, event);
}

void ack_async_event(ibv_async_event *event) noexcept {
  switch (named_by(event->event_type)) {
    case Names::qp:
      if (auto *front = queue::front_of(event->element.qp)) {
        count(front->shown.events_completed);
        return acknowledge(*front->own.back, &ibv_qp::events_completed);
      }
      break;
    case Names::cq:
      if (auto *front = queue::front_of(event->element.cq)) {
        count(front->shown.async_events_completed);
        ibv_cq *const beside = queue::take_events(*front, 1, queue::Event::asynchronous).second;
        return acknowledge(beside != nullptr ? *beside : *front->own.back,
                           &ibv_cq::async_events_completed);
      }
      break;
    case Names::srq:
      if (auto *front = queue::front_of(event->element.srq)) {
        count(front->shown.events_completed);
        return acknowledge(*front->own.back, &ibv_srq::events_completed);
      }
      if (translate::is_legacy(event->element.srq)) {
        auto &legacy = *reinterpret_cast<ibv_srq_legacy *>(event->element.srq);
        count(legacy.events_completed);
        ibv_async_event behind = *event;
        behind.element.srq = static_cast<ibv_srq *>(legacy.ibv_srq);
        return ack_async_event(&behind);
      }
      break;
    case Names::port:
      if (translate::is_of_target(*event)) [[unlikely]]
        return translate::acknowledge_target(*event);
      break;
    case Names::wq: break;
  }
  real().ibv_ack_async_event(event);
}

}  // namespace ibvexp
