// The operations of a context whose programs hold fronts: each replaces a front by rdma-core's
// object, before any other hook, and calls the operation that serves it without fronts.
#include <infiniband/mlx5dv.h>

#include <cerrno>

#include "base/log.h"
#include "translate/queue/attributes.h"
#include "translate/queue/beside.h"
#include "translate/queue/engine/post_shared.h"
#include "translate/queue/fronts.h"
#include "translate/queue/operation.h"

namespace ibvexp::queue {

namespace {

// For objects that were not made by this library.
const NativeOperations &native(ibv_context *context) { return *attached(context)->behind; }

// Data path.

// Posting to a queue pair without queues, such as those of receive-side scaling. Takes all that the
// callers get, as they get it: they would move the rest for its sake, in every call.
template <class Wr>
[[gnu::cold, gnu::noinline]] int refuse_all(ibv_qp *qp, Wr *wr, Wr **bad_wr) {
  asm volatile("" : : "r"(qp));
  if (bad_wr != nullptr) *bad_wr = wr;
  return EINVAL;
}

int post_send(ibv_qp *qp, ibv_send_wr *wr, ibv_send_wr **bad_wr) {
  if (const QpFront *front = front_of(qp)) [[likely]] {
    if (engine::SendQueue *queue = front->own.send) [[likely]]
      return queue->post(*queue, wr, bad_wr);
    if (front->shown.send_cq == nullptr) [[unlikely]]
      return refuse_all(qp, wr, bad_wr);
    return front->own.inner->post_send(front->own.back, wr, bad_wr);
  }
  return native(qp->context).data.post_send(qp, wr, bad_wr);
}

int post_recv(ibv_qp *qp, ibv_recv_wr *wr, ibv_recv_wr **bad_wr) {
  if (const QpFront *front = front_of(qp)) [[likely]] {
    if (engine::ReceiveQueue *queue = front->own.receive) [[likely]]
      return engine::post_receive(*queue, wr, bad_wr);
    if (front->shown.recv_cq == nullptr) [[unlikely]]
      return refuse_all(qp, wr, bad_wr);
    return front->own.inner->post_recv(front->own.back, wr, bad_wr);
  }
  return native(qp->context).data.post_recv(qp, wr, bad_wr);
}

int post_srq_recv(ibv_srq *srq, ibv_recv_wr *wr, ibv_recv_wr **bad_wr) {
  if (const SrqFront *front = front_of(srq)) [[likely]] {
    if (engine::SharedReceiver *receiver = front->own.engine) [[likely]]
      return engine::post_receive(receiver->queue, wr, bad_wr);
    return front->own.inner->post_srq_recv(front->own.back, wr, bad_wr);
  }
  return native(srq->context).data.post_srq_recv(srq, wr, bad_wr);
}

[[gnu::noinline]] int poll_both(CqFront &front, int num_entries, ibv_wc *wc) {
  return take_from_both(
      front, num_entries,
      [&](int wanted, int done) { return engine::poll(*front.own.engine, wanted, wc + done); },
      [&](ibv_cq *cq, int wanted, int done) {
        return front.own.inner->poll_cq(cq, wanted, wc + done);
      });
}

// libmlx5's own poll leaves completions of tag matching half written.
[[gnu::noinline, gnu::cold]] int refuse_tags(const CqFront &front) {
  log(LogLevel::warn,
      "ibv_poll_cq: CQ handle %u has completions of tag matching: poll it with ibv_exp_poll_cq",
      front.shown.handle);
  errno = ENOTSUP;
  return -1;
}

// Where the engine does not read all completions.
[[gnu::noinline]] int poll_libmlx5(CqFront &front, int num_entries, ibv_wc *wc) {
  if (engine::relaxed(front.own.tags)) [[unlikely]]
    return refuse_tags(front);
  ibv_cq *const back = ring_of_libmlx5_alone(front);
  if (back == nullptr) return poll_both(front, num_entries, wc);
  return front.own.inner->poll_cq(back, num_entries, wc);
}

int poll_cq(ibv_cq *cq, int num_entries, ibv_wc *wc) {
  if (CqFront *front = front_of(cq)) [[likely]] {
    if (engine::CompletionQueue *queue = front->own.alone) [[likely]]
      return engine::poll(*queue, num_entries, wc);
    return poll_libmlx5(*front, num_entries, wc);
  }
  return native(cq->context).data.poll_cq(cq, num_entries, wc);
}

template <bool solicited>
[[gnu::always_inline]] inline int arm_front(CqFront &front) {
  const engine::CompletionQueue *const queue = engine::relaxed(front.own.arms[solicited]);
  if (queue == nullptr) [[unlikely]]
    return arm_first(front, solicited);
  engine::arm(*queue, engine::relaxed(front.own.events), engine::relaxed(front.legacy.cons_index),
              solicited);
  return 0;
}

// Apart, which leaves the usual way without what depends on the kind.
[[gnu::noinline]] int arm_for_solicited(CqFront &front) { return arm_front<true>(front); }

int req_notify_cq(ibv_cq *cq, int solicited_only) {
  if (CqFront *front = front_of(cq)) [[likely]] {
    if (solicited_only != 0) [[unlikely]]
      return arm_for_solicited(*front);
    return arm_front<false>(*front);
  }
  return native(cq->context).data.req_notify_cq(cq, solicited_only);
}

// libmlx5's own would add an entry that the engine does not count.
int bind_driven(engine::SendQueue &queue, ibv_mw &mw, const ibv_mw_bind &bind) {
  if ((bind.bind_info.mw_access_flags & IBV_ACCESS_ZERO_BASED) != 0) return errno = EINVAL;
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = bind.wr_id;
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = bind.send_flags;
  wr.bind_mw.mw = &mw;
  wr.bind_mw.rkey = ibv_inc_rkey(mw.rkey);
  wr.bind_mw.bind_info = bind.bind_info;
  const int error = queue.post(queue, &wr, &bad);
  if (error == 0) mw.rkey = wr.bind_mw.rkey;
  return error;
}

int bind_mw(ibv_qp *qp, ibv_mw *mw, ibv_mw_bind *bind) {
  if (const QpFront *front = front_of(qp); front != nullptr && front->own.send != nullptr)
    return bind_driven(*front->own.send, *mw, *bind);
  return native(qp->context).data.bind_mw(behind(qp), mw, bind);
}

// The rest.

// errno is set where an object cannot join what it is to complete on.
bool may_join(const Joining &joining) {
  if (!joining) errno = joining.failure().code;
  return static_cast<bool>(joining);
}

ibv_qp *before_target(ibv_context *context, ibv_qp *back) {
  return back != nullptr ? before_or_destroyed(attached(context), back, Queues::none, QpMade{})
                         : nullptr;
}

ibv_qp *create_qp_ex(ibv_context *context, ibv_qp_init_attr_ex *wanted) {
  if (wanted->qp_type == IBV_QPT_XRC_RECV && wanted->send_cq == nullptr &&
      wanted->recv_cq == nullptr && wanted->srq == nullptr) [[unlikely]]
    return before_target(context, native(context).create_qp_ex(context, wanted));
  ibv_qp_init_attr_ex attr = attributes_behind(*wanted);
  const Ends ends = ends_of(*wanted);
  // A program that asks for builders is newer than the layouts, and casts what it gets.
  const bool builders = (attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
  const bool underlay = is_underlay(attr);
  const Joining joining(*attached(context), ends, &attr.send_cq, &attr.recv_cq, attr.srq,
                        builders || underlay ? By::libmlx5 : By::engine);
  if (!may_join(joining)) return nullptr;
  QpMade made;
  made.ends = ends;
  made.by = joining.by();
  ibv_qp *back = native(context).create_qp_ex(context, &attr);
  if (back == nullptr) return nullptr;
  wanted->cap = attr.cap;
  if (builders) return as_guest(*attached(context), joining, back, attr.recv_cq, attr.srq);
  const bool scaling = (attr.comp_mask & IBV_QP_INIT_ATTR_RX_HASH) != 0;
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_MAX_TSO_HEADER) != 0)
    made.max_tso_header = attr.max_tso_header;
  made.granted = attr.cap;
  made.signal_all = attr.sq_sig_all != 0;
  return before_or_destroyed(attached(context), back, queues_of(attr.qp_type, scaling), made);
}

ibv_qp *open_qp(ibv_context *context, ibv_qp_open_attr *attr) {
  return before_target(context, native(context).open_qp(context, attr));
}

ibv_srq *create_srq_ex(ibv_context *context, ibv_srq_init_attr_ex *wanted) {
  ibv_srq_init_attr_ex attr = attributes_behind(*wanted);
  if ((attr.comp_mask & IBV_SRQ_INIT_ATTR_CQ) == 0) attr.cq = nullptr;
  const bool matches =
      (attr.comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0 && attr.srq_type == IBV_SRQT_TM;
  CqFront *const front = attr.cq != nullptr ? front_of(wanted->cq) : nullptr;
  const Joining joining(*attached(context), {nullptr, front, nullptr}, nullptr, &attr.cq, nullptr,
                        matches ? By::libmlx5 : By::engine);
  if (!may_join(joining)) return nullptr;
  ibv_srq *back = create_native(context, attr);
  if (back == nullptr) return nullptr;
  wanted->attr = attr.attr;
  return before_or_destroyed(attached(context), back, attr.attr.max_sge, joining.receives(),
                             attr.cq);
}

int get_srq_num(ibv_srq *srq, std::uint32_t *number) {
  if (const SrqFront *front = front_of(srq)) [[likely]] {
    *number = front->legacy.srq_num;
    return 0;
  }
  return native(srq->context).get_srq_num(srq, number);
}

int post_srq_ops(ibv_srq *srq, ibv_ops_wr *op, ibv_ops_wr **bad_op) {
  return native(srq->context).post_srq_ops(behind(srq), op, bad_op);
}

ibv_wq *create_wq(ibv_context *context, ibv_wq_init_attr *wanted) {
  ibv_wq_init_attr attr = attributes_behind(*wanted);
  ContextState &state = *attached(context);
  const Joining joining(state, {nullptr, front_of(wanted->cq), nullptr}, nullptr, &attr.cq, nullptr,
                        By::libmlx5);
  if (!may_join(joining)) return nullptr;
  return state.behind->create_wq(context, &attr);
}

int modify_cq(ibv_cq *cq, ibv_modify_cq_attr *attr) {
  if (CqFront *front = front_of(cq)) return moderate_all(*attached(cq->context), *front, *attr);
  return native(cq->context).modify_cq(cq, attr);
}

int modify_qp_rate_limit(ibv_qp *qp, ibv_qp_rate_limit_attr *attr) {
  return native(qp->context).modify_qp_rate_limit(behind(qp), attr);
}

ibv_flow *create_flow(ibv_qp *qp, ibv_flow_attr *attr) {
  return native(qp->context).create_flow(behind(qp), attr);
}

template <class F>
F *take(F *&operation, F *with) {
  F *const native = operation;
  if (native != nullptr) replace(operation, with);
  return native;
}

}  // namespace

void install_doors(ContextState &state) {
  if (process_options().objects == ObjectsOf::native || state.behind != nullptr) return;
  if (!mlx5dv_is_supported(state.context->device)) return;
  // Completions of version 0 do not name their queue by a number of libmlx5's.
  mlx5dv_context device{};
  if (mlx5dv_query_device(state.context, &device) != 0 ||
      (device.flags & MLX5DV_CONTEXT_FLAGS_CQE_V1) == 0)
    return;
  auto natives = std::make_unique<NativeOperations>();
  ibv_context_ops &ops = state.context->ops;
  verbs_context &more = *verbs_get_ctx(state.context);
  natives->data = ops;
  // Both or neither: who finds natives puts fronts before objects.
  start_driving(state);
  state.behind = std::move(natives);
  NativeOperations &native = *state.behind;
  replace(ops.post_send, &post_send);
  replace(ops.post_recv, &post_recv);
  replace(ops.post_srq_recv, &post_srq_recv);
  replace(ops.poll_cq, &poll_cq);
  replace(ops.req_notify_cq, &req_notify_cq);
  replace(ops.bind_mw, &bind_mw);
  native.create_qp_ex = take(more.create_qp_ex, &create_qp_ex);
  native.open_qp = take(more.open_qp, &open_qp);
  native.create_srq_ex = take(more.create_srq_ex, &create_srq_ex);
  native.get_srq_num = take(more.get_srq_num, &get_srq_num);
  native.post_srq_ops = take(more.post_srq_ops, &post_srq_ops);
  native.create_wq = take(more.create_wq, &create_wq);
  native.modify_cq = take(more.modify_cq, &modify_cq);
  native.modify_qp_rate_limit = take(more.modify_qp_rate_limit, &modify_qp_rate_limit);
  native.create_flow = take(more.ibv_create_flow, &create_flow);
}

}  // namespace ibvexp::queue
