// Which queues the engine drives, and which libmlx5.
//
// Queues are the engine's, unless they have an interface that posts or polls past us: queue
// pairs with builders or of mlx5dv_create_qp(), ibv_wq, tag matching, ibv_cq_ex. A ring of
// completions is read by one of the two, since either counts by itself. Where a queue of
// libmlx5's joins a completion queue that the engine has used, it completes beside
// (beside.h); one that nothing has used becomes libmlx5's.
//
// A shared receive queue is in one hand, too. Queue pairs of modern interfaces that receive
// from one of the engine's are guests there: they receive through the engine, and send by
// libmlx5. The two sides of a queue pair may be in different hands.
//
// Objects of programs are driven where they are fronts, and only on devices whose
// completions name their queue by a number of libmlx5's.
//
// The functions may be called by several threads; two that concern the same object are
// the program's to keep apart, as in the verbs that they are part of.
#pragma once

#include <unordered_map>
#include <utility>

#include "translate/queue/engine/completion_queue.h"
#include "translate/queue/fill.h"
#include "translate/state/context_state.h"

namespace ibvexp::engine {

// A shared receive queue, and what its completions are of if it is one of XRC: of no
// queue pair.
struct SharedReceiver : CacheAligned {
  SharedQueue queue;
  Endpoint endpoint;
};

}  // namespace ibvexp::engine

namespace ibvexp::queue {

// What a context has for it. Null in those without.
struct Driver {
  NumberTable<engine::Endpoint> endpoints;  // by user index
  Mutex mutex;                              // changes, and who drives what
  std::unordered_map<const ibv_qp *, std::unique_ptr<engine::Endpoint>> guests;
};

// Throws bad_alloc.
void start_driving(ContextState &state);

// Decides who drives what is going to complete on these objects of rdma-core's, of which
// any may be null. wanted: the engine, if it can. The completion queues become those where
// it has to complete. While it exists, this choice does not change; what was created
// meanwhile has joined them, and what failed leaves no trace.
class Joining {
 public:
  Joining(ContextState &state, const Ends &ends, ibv_cq **send, ibv_cq **receive,
          const ibv_srq *srq, By wanted) noexcept
      : driver_(state.driver.get()) {
    if (driver_ == nullptr) return;
    if (wanted == By::engine && is_settled(at(send), ends.send) &&
        is_settled(at(receive), ends.receive) && is_settled(srq, ends.shared))
      by_ = {By::engine, By::engine};
    else decide(state, ends, send, receive, srq, wanted);
  }
  // For a queue that only receives; its fronts are looked up here.
  Joining(ContextState &state, ibv_cq **cq, const ibv_srq *srq, By wanted) noexcept
      : Joining(state, {nullptr, before(at(cq)), before(srq)}, nullptr, cq, srq, wanted) {}
  ~Joining() {
    if (reserves_) release();
  }
  Joining(const Joining &) = delete;
  Joining &operator=(const Joining &) = delete;

  // The engine drives a queue for good once a queue pair has joined it.
  template <class Front>
  static bool is_settled(const Front *front) {
    return __atomic_load_n(&front->own.joined, __ATOMIC_ACQUIRE);
  }

  // ENOTSUP, logged: the SRQ is the engine's, and its completions would never reach the engine.
  // Otherwise the error of making a completion queue.
  explicit operator bool() const { return error_ == 0; }
  Error failure() const { return {error_}; }
  Sides by() const { return by_; }
  By receives() const { return by_.receive; }

 private:
  static ibv_cq *at(ibv_cq **queue) { return queue != nullptr ? *queue : nullptr; }
  // Without a queue there is nothing to decide.
  template <class Front>
  static bool is_settled(const void *object, const Front *front) {
    if (object == nullptr) return true;
    return front != nullptr && is_settled(front);
  }
  void decide(ContextState &state, const Ends &ends, ibv_cq **send, ibv_cq **receive,
              const ibv_srq *srq, By wanted) noexcept;
  void release() noexcept;

  Driver *driver_;
  CqFront *reserved_[2] = {};
  SrqFront *reserved_srq_ = nullptr;
  bool reserves_ = false;
  Sides by_;
  int error_ = 0;
};

template <class Front>
bool is_driven(const Front *front) {
  return front != nullptr && front->own.engine != nullptr;
}

// Whether something that the engine drives completes on the queue, or did. With the
// driver's mutex.
bool is_used(const CqFront &front) noexcept;

// A queue pair without a front has been made: of a modern interface, which may be a guest.
// Null if that fails; it is destroyed then.
ibv_qp *as_guest(ContextState &state, const Joining &joining, ibv_qp *made,
                 const ibv_cq *receives_on, const ibv_srq *srq) noexcept;

// A queue pair of an underlay network: its requests have segments of their own.
inline bool is_underlay(const ibv_qp_init_attr_ex &attr) noexcept {
  return (attr.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 &&
         (attr.create_flags & IBV_QP_CREATE_SOURCE_QPN) != 0;
}

// Objects that rdma-core has just made come into the engine's hands. Throw bad_alloc,
// and have changed nothing then.
void drive(ContextState &state, CqFront &front, const mlx5dv_cq &of);
void drive(ContextState &state, SrqFront &front, const mlx5dv_srq &of, std::uint32_t max_pieces);
void drive(ContextState &state, QpFront &front, const mlx5dv_qp &of, const QpMade &made);
void drive(ContextState &state, WqFront &front, const mlx5dv_rwq &of, std::uint32_t max_pieces,
           const ibv_exp_wq_mp_rq *strides);
// A shared receive queue of XRC: it completes there.
void complete_on(ContextState &state, SrqFront &front, const ibv_cq *cq);
// A target of the DC transport, with what completions are to say. Its completions go,
// and nothing finds it any more, when the last owner gives it up: after the target.
std::shared_ptr<engine::Endpoint> drive_target(ContextState &state, const ibv_qp *back,
                                               ibv_exp_dct *dct);
// The same before there is a target that libmlx5 does not know: under a user index that libmlx5
// gives to no queue.
std::shared_ptr<engine::Endpoint> drive_target(ContextState &state, ibv_exp_dct *dct);

// The same of a shared receive queue of strides, under a user index that libmlx5 gives to no queue.
void complete_in_strides(ContextState &state, SrqFront &front, const ibv_cq *cq,
                         const ibv_exp_mp_wr &strides);

// The program's pointer to a shared receive queue is another one than the front.
void show_as(SrqFront &front, ibv_srq *shown) noexcept;

// The queue has other memory, or another object, of which these are the facts.
void reopen(CqFront &front, const mlx5dv_cq &of) noexcept;

// ibv_resize_cq() of a queue that the engine drives: 0 or an errno value. The kernel gets a
// ring of the engine's: libmlx5 would move the unread entries from where its own count is.
int resize(CqFront &front, int cqe) noexcept;

// That ring goes, and another one, which may be null, takes its place.
void change_ring(CqFront &front, std::uint8_t *ring, std::size_t bytes) noexcept;

// (program <- facts) What mlx5dv_init_obj() says of the object behind, which knows nothing
// of that ring.
void correct(const CqFront &front, mlx5dv_cq &facts) noexcept;

// After a change of state. guest: may be one.
void follow(ContextState &state, const ibv_qp *guest, ibv_qp_state to) noexcept;
void reset(const QpFront &front) noexcept;
void ring_again(const QpFront &front) noexcept;  // for the receives that were posted before RTR
inline void follow(const QpFront &front, ibv_qp_state to) noexcept {
  if (to >= IBV_QPS_RTS) [[likely]] {
    if (front.own.send != nullptr) front.own.send->select(true);
    return;
  }
  if (front.own.engine == nullptr) return;
  if (to == IBV_QPS_RESET) reset(front);
  else if (front.own.engine->frames) ring_again(front);
}
void follow(WqFront &front, ibv_exp_wq_state to) noexcept;

// The object behind is gone: its unread completions go with it.
void let_go(ContextState &state, const ibv_qp *guest) noexcept;

// The same of what has a front, which goes, too.
void remove(QpFront &front) noexcept;
void remove_driven(QpFront &front) noexcept;  // the engine drives a side; of no connection
void remove(WqFront &front) noexcept;

// What few queues have.
void remove_more(CqFront &front) noexcept;
void remove_more(SrqFront &front) noexcept;
inline void remove(CqFront &front) noexcept {
  if (front.own.ring != nullptr || front.own.released != nullptr || front.own.beside != nullptr)
      [[unlikely]]
    remove_more(front);
  delete front.own.engine;
  front.own.engine = front.own.alone = nullptr;
  front.own.arms[0] = front.own.arms[1] = nullptr;
  give_back(front);
}
inline void remove(SrqFront &front) noexcept {
  if (front.legacy.cq != nullptr || front.own.released != nullptr) [[unlikely]]
    remove_more(front);
  delete std::exchange(front.own.engine, nullptr);
  give_back(front);
}

}  // namespace ibvexp::queue
