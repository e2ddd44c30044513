#include "translate/queue/fronts.h"

#include <cstring>

#include "base/real.h"
#include "table/options.h"
#include "translate/queue/driven.h"

namespace ibvexp::queue {

namespace {

ObjectLayout layout() { return process_options().layout; }

// A copy of the public part, which rdma-core's object has in common with ours.
template <class Object>
void show(Object &shown, const Object &back) {
  std::memcpy(static_cast<void *>(&shown), static_cast<const void *>(&back), sizeof(shown));
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
  const bool basic =
      (attr.comp_mask & IBV_SRQ_INIT_ATTR_TYPE) == 0 || attr.srq_type == IBV_SRQT_BASIC;
  if (basic && (attr.comp_mask & ~(IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE)) == 0)
    return real().ibv_create_srq(attr.pd, reinterpret_cast<ibv_srq_init_attr *>(&attr));
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

ibv_qp *put_before(ContextState *state, ibv_qp *back, Queues of, const QpMade &made) {
  if (state == nullptr || state->behind == nullptr) return back;
  Block<QpFront> block(&take_block<QpFront>());
  QpFront &front = *block;
  show(front.shown, *back);
  if (made.type != ibv_qp_type{}) front.shown.qp_type = made.type;
  front.shown.send_cq = shown(back->send_cq);
  front.shown.recv_cq = shown(back->recv_cq);
  front.shown.srq = shown(back->srq);
  resource_of(front) = resource_before(back);
  mlx5dv_qp facts{};
  if (of == Queues::scaling) fill_scaling(front, layout());
  else if (of == Queues::own) facts = facts_of(back);
  if (facts.dbrec != nullptr) {
    if (made.page != nullptr) facts.bf = {made.page, 0};
    fill(front, facts, made, layout());
  }
  front.own.inner = &state->behind->data;
  front.own.back = back;
  const bool driven = made.by.send == By::engine || made.by.receive == By::engine;
  if (driven && facts.dbrec != nullptr && back->qp_type != IBV_QPT_XRC_RECV)
    drive(*state, front, facts, made);
  back->qp_context = block.release();
  return &front.shown;
}

ibv_cq *put_before(ContextState *state, ibv_cq *back, int comp_vector) {
  if (state == nullptr || state->behind == nullptr) return back;
  Block<CqFront> block(&take_block<CqFront>());
  CqFront &front = *block;
  show(front.shown, *back);
  front.own.inner = &state->behind->data;
  front.own.comp_vector = comp_vector;
  const mlx5dv_cq facts = facts_of(back);
  front.own.back = back;
  drive(*state, front, facts);
  replace_behind(*block.release(), back, facts);
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

void destroy_behind(ibv_qp *back) noexcept { real().ibv_destroy_qp(back); }
void destroy_behind(ibv_cq *back) noexcept { real().ibv_destroy_cq(back); }
void destroy_behind(ibv_srq *back) noexcept { real().ibv_destroy_srq(back); }

void restart(QpFront &front) noexcept {
  with_queues(front.legacy, layout(), [](auto &queues) {
    queues.hot.scur_post = queues.hot.last_post = 0;
    queues.rq.head = queues.rq.tail = 0;
    queues.sq.head = queues.sq.tail = 0;
  });
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
