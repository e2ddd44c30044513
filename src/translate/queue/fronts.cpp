#include "translate/queue/fronts.h"

#include <cstring>

#include "base/log.h"
#include "base/real.h"
#include "table/options.h"
#include "translate/queue/driven.h"

namespace ibvexp::queue {

namespace {

ObjectLayout layout() { return process_options().layout; }

// A copy of the public part, which rdma-core's object has in common with ours. Its mutex and what
// follows are initialised already: static initialisers are zeros.
template <class Object>
void show(Object &shown, const Object &back) {
  std::size_t bytes = sizeof(shown);
  if constexpr (requires { shown.mutex; }) bytes = offsetof(Object, mutex);
  std::memcpy(static_cast<void *>(&shown), static_cast<const void *>(&back), bytes);
}

// The program's object in the place of rdma-core's, if there is one.
template <class Object, class Front>
void show_end(Object *&shown, Front *front) {
  if (shown != nullptr && front != nullptr) shown = &front->shown;
}

const NativeOperations *native_of(ibv_context *context) {
  const ContextState *state = find_state(context);
  return state != nullptr ? state->behind.get() : nullptr;
}

// What serves a creation for ourselves; null and errno where the provider has none.
template <class F>
F operation_of(ibv_context *context, F NativeOperations::*kept, F verbs_context::*own) {
  const NativeOperations *native = native_of(context);
  const F operation = native != nullptr ? native->*kept : verbs_get_ctx(context)->*own;
  if (operation == nullptr) errno = EOPNOTSUPP;
  return operation;
}

}  // namespace

ibv_qp *create_native(ibv_context *context, ibv_qp_init_attr_ex &attr) noexcept {
  const auto create =
      operation_of(context, &NativeOperations::create_qp_ex, &verbs_context::create_qp_ex);
  return create != nullptr ? create(context, &attr) : nullptr;
}

ibv_qp *open_native(ibv_context *context, ibv_qp_open_attr &attr) noexcept {
  const auto open = operation_of(context, &NativeOperations::open_qp, &verbs_context::open_qp);
  return open != nullptr ? open(context, &attr) : nullptr;
}

ibv_srq *create_native(ibv_context *context, ibv_srq_init_attr_ex &attr) noexcept {
  const auto create =
      operation_of(context, &NativeOperations::create_srq_ex, &verbs_context::create_srq_ex);
  return create != nullptr ? create(context, &attr) : nullptr;
}

ibv_wq *create_native(ibv_context *context, ibv_wq_init_attr &attr) noexcept {
  const NativeOperations *native = native_of(context);
  if (native == nullptr || native->create_wq == nullptr) return ibv_create_wq(context, &attr);
  ibv_wq *wq = native->create_wq(context, &attr);
  if (wq == nullptr) return nullptr;
  wq->wq_context = attr.wq_context;  // what the inline does
  wq->events_completed = 0;
  pthread_mutex_init(&wq->mutex, nullptr);
  pthread_cond_init(&wq->cond, nullptr);
  return wq;
}

ibv_cq *create_native(ContextState &state, int cqe, void *cq_context, ibv_comp_channel *channel,
                      int comp_vector, const CqExtras &extras) {
  ibv_cq_init_attr_ex attr{};
  attr.cqe = static_cast<std::uint32_t>(cqe);
  attr.cq_context = cq_context;
  attr.channel = channel;
  attr.comp_vector = static_cast<std::uint32_t>(comp_vector);
  attr.wc_flags = IBV_WC_STANDARD_FLAGS;
  if (extras.tags) attr.wc_flags |= IBV_WC_EX_WITH_TM_INFO;
  if (extras.stamps != StampKind::none) attr.wc_flags |= IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
  if (extras.ignore_overrun) {
    attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    attr.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
  }
  mlx5dv_cq_init_attr dv{};
  if (extras.entry_size != 0) {
    dv.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE;
    dv.cqe_size = static_cast<std::uint16_t>(extras.entry_size);
  }
  if (extras.compression != 0) {
    dv.comp_mask |= MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE;
    dv.cqe_comp_res_format = extras.compression;
  }
  ibv_cq_ex *const made = mlx5dv_create_cq(state.context, &attr, &dv);
  if (made == nullptr) return nullptr;
  OwnedReal<ibv_cq> cq(ibv_cq_ex_to_cq(made));
  const MutexGuard guard(state.mutex);
  CqState &of = enter_cq(state, cq.get());
  of.entry_size = extras.entry_size;
  of.stamps = extras.stamps;
  of.compressed = extras.compression != 0;
  of.tags = extras.tags;
  return cq.release();
}

namespace {

[[gnu::noinline]] int destroy_known(ContextState &state, CqState &known, ibv_cq *cq) {
  const std::uint32_t handle = cq->handle;
  {
    // Out of the table first: the handle may be given out again at once.
    const MutexGuard guard(state.mutex);
    state.cqs.set(handle, nullptr);
  }
  const int result = real().ibv_destroy_cq(cq);
  const MutexGuard guard(state.mutex);
  if (result == 0) state.cq_pool.give_back(known);
  else state.cqs.set(handle, &known);
  return result;
}

}  // namespace

int destroy_with_state(ContextState *state, ibv_cq *cq) {
  CqState *const known = find_cq(state, cq);
  return known == nullptr ? real().ibv_destroy_cq(cq) : destroy_known(*state, *known, cq);
}

ibv_qp *put_before(ContextState *state, ibv_qp *back, Queues of, const QpMade &made) {
  if (state == nullptr || state->behind == nullptr) return back;
  Block<QpFront> block(&take_block<QpFront>());
  QpFront &front = *block;
  show(front.shown, *back);
  if (made.type != ibv_qp_type{}) front.shown.qp_type = made.type;
  show_end(front.shown.send_cq, made.ends.send);
  show_end(front.shown.recv_cq, made.ends.receive);
  show_end(front.shown.srq, made.ends.shared);
  resource_of(front) = resource_before(back);
  mlx5dv_qp facts = of == Queues::own ? facts_of(back) : mlx5dv_qp{};
  if (of == Queues::scaling) fill_scaling(front, layout());
  if (of == Queues::none) front.own.known = &front.own.notes;
  if (facts.dbrec != nullptr) {
    if (made.page != nullptr) facts.bf = {made.page, 0};
    fill(front, facts, made, layout());
  }
  front.own.inner = &state->behind->data;
  front.own.back = back;
  const bool driven = made.by.send == By::engine || made.by.receive == By::engine;
  if (driven && facts.dbrec != nullptr) drive(*state, front, facts, made);
  back->qp_context = block.release();
  return &front.shown;
}

ibv_cq *put_before(ContextState *state, ibv_cq *back, int comp_vector, bool plain) {
  if (state == nullptr || state->behind == nullptr) return back;
  Block<CqFront> block(&take_block<CqFront>());
  CqFront &front = *block;
  show(front.shown, *back);
  front.own.inner = &state->behind->data;
  front.own.comp_vector = comp_vector;
  front.own.plain = plain;
  const mlx5dv_cq facts = facts_of(back);
  fill(front, facts);
  front.own.back = back;
  drive(*state, front, facts);
  front.own.counted = front.own.engine != nullptr ? back : nullptr;
  back->cq_context = block.release();
  return &front.shown;
}

ibv_srq *put_before(ContextState *state, ibv_srq *back, std::uint32_t max_pieces, By by,
                    const ibv_cq *cq) {
  if (state == nullptr || state->behind == nullptr) return back;
  Block<SrqFront> block(&take_block<SrqFront>());
  SrqFront &front = *block;
  show(front.shown, *back);
  resource_of(front) = resource_before(back);
  const mlx5dv_srq facts = facts_of(back);
  if (facts.buf != nullptr) fill(front, facts, max_pieces);
  front.shown.context = state->context;
  front.own.inner = &state->behind->data;
  front.own.back = back;
  front.own.held = &front.shown;
  if (by == By::engine) drive(*state, front, facts, max_pieces);
  if (cq != nullptr) complete_on(*state, front, cq);
  back->srq_context = block.release();
  return &front.shown;
}

ibv_exp_wq *put_before(ContextState *state, ibv_exp_wq *back, ibv_wq *real,
                       std::uint32_t max_pieces, const ibv_exp_wq_mp_rq *strides, By by) {
  if (state == nullptr || state->behind == nullptr) return back;
  Block<WqFront> block(&take_block<WqFront>());
  WqFront &front = *block;
  show(front.shown, *back);
  front.shown.cq = shown(back->cq);
  resource_of(front) = resource_before(real);
  const mlx5dv_rwq facts = facts_of(real);
  if (facts.dbrec != nullptr) fill(front, facts, max_pieces, strides, layout());
  front.own.back = back;
  if (by == By::engine && facts.dbrec != nullptr) drive(*state, front, facts, max_pieces, strides);
  return &block.release()->shown;
}

void restart(QpFront &front) noexcept {
  with_queues(front.legacy, layout(), [](auto &queues) {
    queues.hot.scur_post = queues.hot.last_post = 0;
    queues.rq.head = queues.rq.tail = 0;
    queues.sq.head = queues.sq.tail = 0;
  });
}

int gone(const char *verb) noexcept {
  log(LogLevel::warn, "%s: the object was destroyed before", verb);
  return errno = EINVAL;
}

void replace_behind(CqFront &front, ibv_cq *back, const mlx5dv_cq &facts) noexcept {
  fill(front, facts);
  front.shown.cqe = back->cqe;
  front.shown.handle = back->handle;
  front.own.back = back;
  front.legacy.wait_index = front.legacy.wait_count = 0;  // as of its creation
  back->cq_context = &front;
  front.own.counted = front.own.engine != nullptr ? back : nullptr;
  reopen(front, facts);
}

}  // namespace ibvexp::queue
