// Fronts before objects that rdma-core has just made. In contexts without fronts
// (IBVEXP_ENGINE=native, other providers) objects are shown as they are.
#pragma once

#include <cerrno>
#include <new>

#include "base/owned.h"
#include "base/real.h"
#include "translate/queue/driven.h"
#include "translate/state/context_state.h"

namespace ibvexp::queue {

// Makes a context one whose programs hold fronts, if it is to be: before the program
// has it. Puts the functions of doors.cpp into its operations.
void install_doors(ContextState &state);

// Creations of rdma-core's for ourselves: the inlines would make objects for a
// program.
ibv_qp *create_native(ibv_context *context, ibv_qp_init_attr_ex &attr) noexcept;
ibv_qp *open_native(ibv_context *context, ibv_qp_open_attr &attr) noexcept;
ibv_srq *create_native(ibv_context *context, ibv_srq_init_attr_ex &attr) noexcept;
ibv_wq *create_native(ibv_context *context, ibv_wq_init_attr &attr) noexcept;

// What a completion queue has that ibv_create_cq() does not give.
struct CqExtras {
  std::uint32_t entry_size = 0;  // 0: what libmlx5 chooses
  StampKind stamps = StampKind::none;
  std::uint8_t compression = 0;  // a format, 0 for none
  bool ignore_overrun = false;
  bool tags = false;

  bool special() const { return stamps != StampKind::none || compression != 0; }
  bool any() const { return special() || entry_size != 0 || ignore_overrun || tags; }
};
// With what has to be known about it (CqState). Throws bad_alloc.
ibv_cq *create_native(ContextState &state, int cqe, void *cq_context, ibv_comp_channel *channel,
                      int comp_vector, const CqExtras &extras);

// ibv_destroy_cq(), of that too. state may be null.
int destroy_with_state(ContextState *state, ibv_cq *cq);

// Each returns what the program is to hold. The object behind must be destroyed by
// the caller on failure. Throw bad_alloc.

// of: how a queue pair has its queues. Targets of XRC, and entries of receive-side scaling, have
// none.
enum class Queues : std::uint8_t { own, none, scaling };
inline Queues queues_of(ibv_qp_type type, bool scales) {
  if (scales) return Queues::scaling;
  return type == IBV_QPT_XRC_RECV ? Queues::none : Queues::own;
}
ibv_qp *put_before(ContextState *state, ibv_qp *back, Queues of, const QpMade &made);
// plain: of ibv_create_cq(), and nothing but that.
ibv_cq *put_before(ContextState *state, ibv_cq *back, int comp_vector, bool plain);
// cq: rdma-core's, of a queue of XRC.
ibv_srq *put_before(ContextState *state, ibv_srq *back, std::uint32_t max_pieces,
                    By by = By::engine, const ibv_cq *cq = nullptr);
// back: a translate::WorkQueue, of real.
ibv_exp_wq *put_before(ContextState *state, ibv_exp_wq *back, ibv_wq *real,
                       std::uint32_t max_pieces, const ibv_exp_wq_mp_rq *strides, By by);

// What a creation of rdma-core's returns, with the object gone on failure.
template <class Object, class... About>
Object *before_or_destroyed(ContextState *state, Object *back, const About &...about) noexcept {
  try {
    OwnedReal<Object> owned(back);
    Object *const shown = put_before(state, back, about...);
    static_cast<void>(owned.release());
    return shown;
  } catch (const std::bad_alloc &) {
    errno = ENOMEM;
    return nullptr;
  }
}

// What changes about a public structure, from the object behind. Threads may ask at the same time.
inline void refresh(QpFront &front) noexcept {
  const ibv_qp *const back = front.own.back;
  engine::set_relaxed(front.shown.state, back->state);
  engine::set_relaxed(front.shown.pd, back->pd);
}

// What verbs keep about one of rdma-core's queue pairs, or null.
inline QpNotes *notes_of(ContextState *state, const ibv_qp *qp) noexcept {
  if (const QpFront *front = before(qp)) return front->own.known;
  return find_qp(state, qp);
}

// What the table of queue pairs has of these, or null: notes in a front are not there.
inline QpState *state_of(const QpFront *front, QpNotes *notes) noexcept {
  const bool own = front != nullptr && notes == &front->own.notes;
  return own ? nullptr : static_cast<QpState *>(notes);
}

// After a reset: counters that a direct program has moved begin again.
void restart(QpFront &front) noexcept;

// A base verb called with an object that was destroyed: EINVAL, logged.
int gone(const char *verb) noexcept;

// Another completion queue, of which these are the facts, takes the place behind a
// front.
void replace_behind(CqFront &front, ibv_cq *back, const mlx5dv_cq &facts) noexcept;

// A front whose object is gone; null for none.
template <class Front>
void remove(Front *front) noexcept {
  if (front != nullptr) remove(*front);
}

// ibv_destroy_srq(), and the front goes, too.
inline int destroy_with_front(ibv_srq *srq) noexcept {
  SrqFront *const front = before(srq);
  const int error = real().ibv_destroy_srq(srq);
  if (error == 0) remove(front);
  return error;
}

// A new front, which goes back where it is not released.
template <class Front>
using Block = Owned<Front, remove<Front>>;

}  // namespace ibvexp::queue
