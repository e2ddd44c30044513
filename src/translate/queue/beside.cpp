#include "translate/queue/beside.h"

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "base/log.h"
#include "base/real.h"
#include "table/options.h"
#include "translate/queue/driven.h"
#include "translate/queue/engine/open.h"
#include "translate/queue/fronts.h"

namespace ibvexp::queue {

namespace {

ibv_cq *make_as(ContextState &state, CqFront &front, const CqExtras &extras) {
  const int cqe = front.shown.cqe, vector = front.own.comp_vector;
  ibv_comp_channel *const channel = front.shown.channel;
  if (!extras.any()) return real().ibv_create_cq(state.context, cqe, &front, channel, vector);
  try {
    return create_native(state, cqe, &front, channel, vector, extras);
  } catch (const std::bad_alloc &) {
    errno = ENOMEM;
    return nullptr;
  }
}

// The queue as the program has set it up.
ibv_cq *make(ContextState &state, CqFront &front) {
  const CqState *known = find_cq(&state, front.own.back);
  // A queue that matches tags may join at any time, and the ring stays.
  ibv_cq *const fresh = make_as(state, front,
                                {.stamps = known != nullptr ? known->stamps : StampKind::none,
                                 .ignore_overrun = front.own.ignores_overrun,
                                 .tags = switched_on(Beyond::tag_matching)});
  if (fresh == nullptr || !front.own.moderated) return fresh;
  ibv_modify_cq_attr attr = front.own.moderation;
  state.behind->modify_cq(fresh, &attr);
  return fresh;
}

// A thread that arms the front from here on finds the queue; for one that did so before, this
// arms the queue.
void arm_as_before(const CqFront &front, const engine::CompletionQueue &queue) {
  const std::uint8_t armed = __atomic_load_n(&front.own.armed, __ATOMIC_SEQ_CST);
  if (armed == 0) return;
  engine::arm(queue, engine::relaxed(front.own.events), engine::relaxed(*queue.consumed),
              (armed & armed_for_all) == 0);
}
void arm_like(const CqFront &front, ibv_cq *fresh) {
  const std::uint8_t armed = __atomic_load_n(&front.own.armed, __ATOMIC_SEQ_CST);
  if (armed != 0) front.own.inner->req_notify_cq(fresh, (armed & armed_for_all) == 0);
}

// The queues that complete on the front: the engine's, unless null, and the object behind.
struct Part {
  engine::CompletionQueue *engine;
  ibv_cq *back;
};

// give_up() comes after the new object is there, and bring_engine() before: between two equal
// looks at the engine's part the object is the right one.
Part part_of(const CqFront &front) {
  for (;;) {
    auto *const engine = __atomic_load_n(&front.own.engine, __ATOMIC_SEQ_CST);
    ibv_cq *const back = __atomic_load_n(&front.own.back, __ATOMIC_SEQ_CST);
    if (engine == __atomic_load_n(&front.own.engine, __ATOMIC_SEQ_CST)) return {engine, back};
  }
}

template <class T>
void publish(T *&to, T *value) {
  __atomic_store_n(&to, value, __ATOMIC_SEQ_CST);
}

// Verbs that would go to the engine alone have to look for another queue from here on.
void end_sole_use(CqFront &front) {
  engine::CompletionQueue *const none = nullptr;
  const engine::Guard guard(front.own.engine->lock);
  publish(front.own.alone, none);
  for (engine::CompletionQueue *&arms : front.own.arms) publish(arms, none);
}

bool put_beside(CqFront &front, ibv_cq *fresh) {
  if (front.own.beside == nullptr) {
    auto *const beside = new (std::nothrow) Beside;
    if (beside == nullptr) return false;
    publish(front.own.beside, beside);
  }
  {
    const engine::Guard guard(front.own.beside->lock);
    front.own.beside->cq = fresh;
  }
  end_sole_use(front);
  arm_like(front, fresh);
  return true;
}

// The engine has no part in the queue any more. A thread that is just polling it may still
// see what the engine had.
void give_up(CqFront &front) {
  front.own.released = front.own.engine;
  publish(front.own.counted, static_cast<ibv_cq *>(nullptr));
  end_sole_use(front);
  publish(front.own.engine, static_cast<engine::CompletionQueue *>(nullptr));
}

// Puts a queue that libmlx5 cleans in the place of one that it was asked about. False: it is in
// use, by something that was made past this library; or it has been armed: from then on
// ibv_req_notify_cq() takes no lock, and the queue stays where it is.
bool put_in_place(ContextState &state, CqFront &front, ibv_cq *fresh) {
  engine::CompletionQueue &queue = *front.own.engine;
  ibv_cq *const old = front.own.back;
  const mlx5dv_cq facts = facts_of(old);
  {
    const engine::Guard guard(queue.lock);
    if (engine::relaxed(front.own.armed) != 0) return false;
    engine::close(queue);
  }
  if (real().ibv_destroy_cq(old) != 0) {
    const engine::Guard guard(queue.lock);
    engine::open(queue, facts);
    // Armed meanwhile, which a closed queue does not pass on.
    arm_as_before(front, queue);
    return false;
  }
  publish(front.own.back, fresh);
  front.shown.handle = fresh->handle;
  front.legacy = {};
  give_up(front);
  arm_like(front, fresh);
  return true;
}

}  // namespace

namespace {

[[gnu::noinline]] ibv_cq *make_ring_of_libmlx5(ContextState &state, CqFront &front) noexcept {
  const bool unused = front.own.plain && !is_used(front);
  if (front.own.described) {
    if (unused) give_up(front);
    // A program that knows the ring and polls by no verb reads all completions there.
    if (engine::relaxed(front.legacy.cons_index) == 0) return front.own.back;
  }
  ibv_cq *const fresh = make(state, front);
  if (fresh == nullptr) return nullptr;
  if (unused && put_in_place(state, front, fresh)) return fresh;
  if (put_beside(front, fresh)) return fresh;
  destroy_with_state(&state, fresh);
  errno = ENOMEM;
  return nullptr;
}

}  // namespace

ibv_cq *ring_of_libmlx5(ContextState &state, CqFront &front) noexcept {
  if (front.own.engine == nullptr) return front.own.back;
  if (front.own.beside != nullptr && front.own.beside->cq != nullptr) return front.own.beside->cq;
  return make_ring_of_libmlx5(state, front);
}

bool bring_engine(ContextState &state, CqFront &front) noexcept {
  engine::CompletionQueue *const queue = front.own.released;
  if (queue == nullptr || front.own.described) return false;
  std::unique_ptr<Beside> beside(new (std::nothrow) Beside);
  ibv_cq *const fresh = beside != nullptr ? make(state, front) : nullptr;
  if (fresh == nullptr) return false;
  const mlx5dv_cq facts = facts_of(fresh);
  fill(front, facts);
  {
    const engine::Guard guard(queue->lock);
    engine::open(*queue, facts);
  }
  ibv_cq *const old = front.own.back;
  beside->cq = old;
  front.own.plain = false;
  publish(front.own.beside, beside.release());
  front.own.released = nullptr;
  publish(front.own.engine, queue);
  publish(front.own.back, fresh);
  publish(front.own.counted, fresh);
  {
    const engine::Guard guard(queue->lock);
    arm_as_before(front, *queue);
  }
  return true;
}

ibv_cq *ring_of_libmlx5_alone(const CqFront &front) noexcept {
  const Part part = part_of(front);
  return part.engine == nullptr ? part.back : nullptr;
}

int arm_first(CqFront &front, bool solicited_only) noexcept {
  // Before anything else: a queue that comes to stand beside the engine's is armed by it.
  const std::uint8_t kind = solicited_only ? armed_for_solicited : armed_for_all;
  if ((engine::relaxed(front.own.armed) & kind) == 0)
    __atomic_fetch_or(&front.own.armed, kind, __ATOMIC_SEQ_CST);
  const Part part = part_of(front);
  if (part.engine == nullptr) return front.own.inner->req_notify_cq(part.back, solicited_only);
  {
    engine::CompletionQueue &queue = *part.engine;
    const engine::Guard guard(queue.lock);
    engine::arm(queue, engine::relaxed(front.own.events), engine::relaxed(*queue.consumed),
                solicited_only);
    // The next time without a lock: an armed queue stays where it is (put_in_place()), unless
    // that has just closed it.
    if (!engine::is_closed(queue))
      publish(front.own.arms[solicited_only], __atomic_load_n(&front.own.alone, __ATOMIC_SEQ_CST));
  }
  Beside *const beside = __atomic_load_n(&front.own.beside, __ATOMIC_SEQ_CST);
  if (beside == nullptr) return 0;
  const engine::Guard guard(beside->lock);
  ibv_cq *const cq = beside->cq;
  return cq != nullptr ? front.own.inner->req_notify_cq(cq, solicited_only) : 0;
}

int moderate_all(ContextState &state, CqFront &front, ibv_modify_cq_attr &attr) noexcept {
  const auto modify = state.behind->modify_cq;
  if (front.own.beside != nullptr && front.own.beside->cq != nullptr) [[unlikely]]
    if (const int error = modify(front.own.beside->cq, &attr); error != 0) return error;
  if (const int error = modify(front.own.back, &attr); error != 0) return error;
  front.own.moderated = true;
  front.own.moderation = attr;
  return 0;
}

int resize_all(CqFront &front, int cqe) noexcept {
  ibv_cq *const other = front.own.beside != nullptr ? front.own.beside->cq : nullptr;
  if (other == nullptr) return resize(front, cqe);
  const int before = other->cqe;
  const int result = real().ibv_resize_cq(other, cqe);
  if (result != 0) return result < 0 ? errno : result;
  const int error = resize(front, cqe);
  if (error != 0) real().ibv_resize_cq(other, before);
  return error;
}

int destroy_beside(CqFront &front) noexcept {
  Beside *const beside = front.own.beside;
  if (beside == nullptr) return 0;
  ibv_cq *cq = nullptr;
  {
    const engine::Guard guard(beside->lock);
    cq = beside->leaving = std::exchange(beside->cq, nullptr);
  }
  if (cq == nullptr) return 0;
  const int result = destroy_with_state(attached(front.shown.context), cq);
  const engine::Guard guard(beside->lock);
  beside->leaving = nullptr;
  if (result != 0) beside->cq = cq;
  else if (front.own.engine != nullptr) publish(front.own.alone, front.own.engine);
  return result;
}

void count_event(CqFront &front, const ibv_cq *of, Event what) noexcept {
  const bool of_engine = front.own.engine != nullptr && front.own.back == of;
  if (!of_engine)
    __atomic_fetch_add(&front.own.unacknowledged[static_cast<int>(what)], 1, __ATOMIC_RELAXED);
  else if (what == Event::completion)
    __atomic_fetch_add(&front.own.events, engine::arm_step, __ATOMIC_RELAXED);
}

std::pair<unsigned, ibv_cq *> take_events(CqFront &front, unsigned count, Event what) noexcept {
  unsigned &left = front.own.unacknowledged[static_cast<int>(what)];
  unsigned had = __atomic_load_n(&left, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(&left, &had, had - std::min(had, count), false,
                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  Beside *const beside = __atomic_load_n(&front.own.beside, __ATOMIC_SEQ_CST);
  const unsigned taken =
      front.own.engine != nullptr && beside != nullptr ? std::min(had, count) : 0;
  if (taken == 0) return {0, nullptr};
  const engine::Guard guard(beside->lock);
  return {taken, beside->cq != nullptr ? beside->cq : beside->leaving};
}

ibv_cq *described(CqFront &front) noexcept {
  front.own.described = true;
  ibv_cq *const other = front.own.beside != nullptr ? front.own.beside->cq : nullptr;
  if (other == nullptr) return front.own.back;
  if (!is_used(front)) return other;
  log(LogLevel::warn,
      "mlx5dv_init_obj: CQ %#x: completions of ibv_create_qp() and of modern interfaces are in "
      "rings of their own",
      front.legacy.cqn);
  return nullptr;
}

}  // namespace ibvexp::queue
