// Completions of queues that libmlx5 drives, on a completion queue that the engine
// drives: they go to a completion queue of rdma-core's own, beside the engine's and of the
// same size, channel and vector. The program holds one front, and its verbs serve both:
// a poll takes from both in turns, an event of either is one of the front.
//
// Completions of one queue stay in their order. Between queues verbs promise none. Arming the
// front arms both, so that a second event may come where the program expects one.
#pragma once

#include <cerrno>
#include <utility>

#include "translate/queue/front.h"
#include "translate/state/context_state.h"

namespace ibvexp::queue {

// Where the queues of a front complete that libmlx5 drives: made if need be. Null with errno
// set. The caller holds the driver's mutex.
ibv_cq *ring_of_libmlx5(ContextState &state, CqFront &front) noexcept;

// Lets the engine read completions of a front that libmlx5 has alone. False: it cannot. The
// caller holds the driver's mutex.
bool bring_engine(ContextState &state, CqFront &front) noexcept;

// The object behind a front that only libmlx5 polls; null: the engine has a part in it.
ibv_cq *ring_of_libmlx5_alone(const CqFront &front) noexcept;

// Takes completions from both, the engine's first every other time. from_engine(wanted,
// done) and from_libmlx5(cq, wanted, done) put completions behind those that are done, and
// return how many, or a negative number for an error.
template <class FromEngine, class FromLibmlx5>
int take_from_both(CqFront &front, int wanted, FromEngine from_engine, FromLibmlx5 from_libmlx5) {
  Beside &beside = *front.own.beside;
  const bool engine_first = (__atomic_fetch_add(&beside.polls, 1, __ATOMIC_RELAXED) & 1) == 0;
  int done = 0;
  for (const bool engine : {engine_first, !engine_first}) {
    if (done >= wanted) break;
    int count = 0;
    if (engine) {
      count = from_engine(wanted - done, done);
    } else {
      const engine::Guard guard(beside.lock);
      if (beside.cq != nullptr) count = from_libmlx5(beside.cq, wanted - done, done);
    }
    if (count < 0) return done != 0 ? done : count;
    done += count;
  }
  return done;
}

// ibv_req_notify_cq() where the engine is not alone, or for the first time; ibv_modify_cq().
// 0 or an errno value.
int arm_first(CqFront &front, bool solicited_only) noexcept;
int moderate_all(ContextState &state, CqFront &front, ibv_modify_cq_attr &attr) noexcept;

// ibv_resize_cq() of both, and ibv_destroy_cq() of the one of rdma-core's.
int resize_all(CqFront &front, int cqe) noexcept;
int destroy_beside(CqFront &front) noexcept;

// An event of one of rdma-core's objects was handed to the program.
enum class Event : std::uint8_t { completion, asynchronous };
void count_event(CqFront &front, const ibv_cq *of, Event what) noexcept;
// The program acknowledges so many: how many of them are of the object beside, and that object.
std::pair<unsigned, ibv_cq *> take_events(CqFront &front, unsigned count, Event what) noexcept;

// Which object mlx5dv_init_obj() is to describe: null, logged, where completions are in two
// places.
ibv_cq *described(CqFront &front) noexcept;

}  // namespace ibvexp::queue
