#include "exp/events.h"

#include "translate/queue/beside.h"
#include "translate/verbs/xrc.h"
#include "translate/verbs/xrc_srq.h"

namespace ibvexp {

namespace {

enum class Names { nothing, qp, cq, srq };

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
    default: return Names::nothing;
  }
}

// Counted before rdma-core does: a destroy may wait for its count, and frees the object then.
void count(std::uint32_t &events) noexcept { __atomic_fetch_add(&events, 1, __ATOMIC_RELAXED); }

}  // namespace

void show_object(ContextState *state, ibv_async_event &event) noexcept {
  switch (named_by(event.event_type)) {
    case Names::qp:
      if (queue::before(event.element.qp) == nullptr && state != nullptr)
        translate::show_xrc_receiver(event);
      else event.element.qp = queue::shown(event.element.qp);
      break;
    case Names::cq:
      if (auto *front = queue::before(event.element.cq)) {
        queue::count_event(*front, event.element.cq, queue::Event::asynchronous);
        event.element.cq = &front->shown;
      }
      break;
    case Names::srq:
      if (state == nullptr) break;
      if (state->has_legacy_srqs.load(std::memory_order_relaxed))
        translate::show_srq(*state, event);
      else event.element.srq = queue::shown(event.element.srq);
      break;
    case Names::nothing: break;
  }
}

void acknowledge_object(ibv_async_event &event) noexcept {
  switch (named_by(event.event_type)) {
    case Names::qp:
      if (auto *front = queue::front_of(event.element.qp)) {
        count(front->shown.events_completed);
        event.element.qp = front->own.back;
      }
      break;
    case Names::cq:
      if (auto *front = queue::front_of(event.element.cq)) {
        count(front->shown.async_events_completed);
        ibv_cq *const beside = queue::take_events(*front, 1, queue::Event::asynchronous).second;
        event.element.cq = beside != nullptr ? beside : front->own.back;
      }
      break;
    case Names::srq:
      if (translate::is_legacy(event.element.srq)) {
        auto &legacy = *reinterpret_cast<ibv_srq_legacy *>(event.element.srq);
        count(legacy.events_completed);
        event.element.srq = static_cast<ibv_srq *>(legacy.ibv_srq);
      }
      if (auto *front = queue::front_of(event.element.srq)) {
        count(front->shown.events_completed);
        event.element.srq = front->own.back;
      }
      break;
    case Names::nothing: break;
  }
}

}  // namespace ibvexp
