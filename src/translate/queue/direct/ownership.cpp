#include "translate/queue/direct/ownership.h"

#include "base/log.h"
#include "translate/queue/direct/completion.h"
#include "translate/queue/direct/dispatch.h"
#include "translate/queue/direct/exp_poll.h"
#include "translate/queue/front.h"
#include "translate/queue/lane/hooks.h"
#include "translate/queue/operation.h"
#include "translate/queue/receive_in_reset.h"
#include "translate/state/context_state.h"
#include "translate/state/work_queue.h"

#include <algorithm>
#include <bit>

namespace ibvexp::direct {

using translate::WorkQueue;

namespace {

// libmlx5 gives each object a number by which completions name it, and no
// function returns it. It has been in the eight bytes in front of the object since
// there are such numbers: the kind of the object, then the number.
struct ResourceHeader {
  std::uint32_t kind;
  std::uint32_t number;
};
enum : std::uint32_t { kind_qp = 0, kind_wq = 3 };

bool user_index_of(const void *object, std::uint32_t kind, std::uint32_t &index) {
  const auto header =
      load<ResourceHeader>(static_cast<const std::uint8_t *>(object) - sizeof(ResourceHeader));
  index = header.number;
  return header.kind == kind && header.number < 1u << 24;
}

// A queue to take over, described before anything is changed.
struct Candidate {
  ibv_qp *qp;
  QpState *qp_state;
  bool send;
  bool receive;
};

Error refuse(const ibv_cq *cq, const char *what, std::uint32_t number, const char *why, int error) {
  log(LogLevel::warn, "CQ with handle %u cannot be driven by an interface family: %s %#x: %s",
      cq->handle, what, number, why);
  return {error};
}

mlx5dv_qp facts_of(ibv_qp *qp) {
  mlx5dv_qp facts{};
  mlx5dv_obj object{};
  object.qp.in = qp;
  object.qp.out = &facts;
  if (mlx5dv_init_obj(&object, MLX5DV_OBJ_QP) != 0) facts = {};
  return facts;
}

// The side completes on cq and has never been used.
Result<void> check_side(const ibv_cq *cq, const Candidate &c) {
  const ibv_qp &qp = *c.qp;
  const auto refused = [&](const char *why, int error) {
    return refuse(cq, "QP", qp.qp_num, why, error);
  };
  if (qp.qp_type != IBV_QPT_RC && qp.qp_type != IBV_QPT_UC && qp.qp_type != IBV_QPT_RAW_PACKET)
    return refused("not of type RC, UC or RAW_PACKET", EINVAL);
  if (c.receive && qp.srq != nullptr) return refused("receives from an SRQ", EINVAL);
  std::uint32_t index = 0;
  if (!user_index_of(c.qp, kind_qp, index)) return refused("of an unknown libmlx5", EINVAL);
  const mlx5dv_qp facts = facts_of(c.qp);
  if (facts.dbrec == nullptr) return refused("without buffers", EINVAL);
  if (c.send && facts.sq.wqe_cnt != 0 && load<std::uint32_t>(facts.dbrec + 1) != 0)
    return refused("requests have been posted", EBUSY);
  if (c.receive && facts.rq.wqe_cnt != 0) {
    // In INIT the record of a raw packet QP says nothing, but the entry does.
    const auto *entry = static_cast<const std::uint8_t *>(facts.rq.buf);
    const bool untouched = load<std::uint64_t>(entry) == 0 && load<std::uint64_t>(entry + 8) == 0;
    if (load<std::uint32_t>(facts.dbrec) != 0 || !untouched)
      return refused("receives have been posted", EBUSY);
  }
  return {};
}

// The builder lane, which counts on libmlx5, has posted nothing yet either.
void take_send(Endpoint &endpoint, const mlx5dv_qp &facts, QpState &known,
               const ibv_device_attr &device) {
  SendQueue &queue = endpoint.send;
  queue.blocks = facts.sq.wqe_cnt;
  queue.ring.begin = static_cast<std::uint8_t *>(facts.sq.buf);
  queue.ring.end = queue.ring.begin + std::size_t{facts.sq.wqe_cnt} * block_bytes;
  queue.number = endpoint.qp->qp_num << 8;
  queue.max_inline = known.max_inline_data;
  queue.always = known.sq_sig_all ? IBV_EXP_QP_BURST_SIGNALED : 0;
  queue.refused = ~std::uint32_t{IBV_EXP_QP_BURST_SIGNALED | IBV_EXP_QP_BURST_SOLICITED |
                                 IBV_EXP_QP_BURST_FENCE | IBV_EXP_QP_BURST_IP_CSUM};
  // Frames only, and where the device can.
  if (!endpoint.raw_packet || (device.device_cap_flags & IBV_DEVICE_RAW_IP_CSUM) == 0)
    queue.refused |= IBV_EXP_QP_BURST_IP_CSUM;
  queue.record = reinterpret_cast<std::uint32_t *>(facts.dbrec + 1);
  queue.page = facts.bf.reg;
  queue.ids = std::make_unique<std::uint64_t[]>(queue.blocks);
  known.lane.ex = nullptr;
  endpoint.owns_send = true;
}

void take_receive(Endpoint &endpoint, const mlx5dv_qp &facts) {
  ReceiveQueue &queue = endpoint.receive;
  queue.buffer = static_cast<std::uint8_t *>(facts.rq.buf);
  queue.entries = facts.rq.wqe_cnt;
  queue.entry_bytes = facts.rq.stride;
  queue.record = reinterpret_cast<std::uint32_t *>(facts.dbrec);
  queue.held_for = endpoint.raw_packet ? endpoint.qp : nullptr;
  queue.ids = std::make_unique<std::uint64_t[]>(queue.entries);
  endpoint.owns_receive = true;
}

// Fills in the sides. Existing endpoints have the other one already.
Endpoint &enter(Context &context, const Candidate &c, const ibv_device_attr &device) {
  Endpoint *endpoint = find(&context, c.qp);
  if (endpoint == nullptr) {
    context.owned_endpoints.push_back(std::make_unique<Endpoint>());
    endpoint = context.owned_endpoints.back().get();
    endpoint->qp = c.qp;
    endpoint->send_cq = c.qp->send_cq;
    endpoint->recv_cq = c.qp->recv_cq;
    endpoint->raw_packet = c.qp->qp_type == IBV_QPT_RAW_PACKET;
    user_index_of(c.qp, kind_qp, endpoint->user_index);
  }
  const mlx5dv_qp facts = facts_of(c.qp);
  if (c.send && !endpoint->owns_send) take_send(*endpoint, facts, *c.qp_state, device);
  if (c.receive && !endpoint->owns_receive) take_receive(*endpoint, facts);
  context.endpoints.set(endpoint->user_index, endpoint);
  context.queue_pairs.set(c.qp->qp_num, endpoint);
  return *endpoint;
}

mlx5dv_rwq facts_of(ibv_wq *wq) {
  mlx5dv_rwq facts{};
  mlx5dv_obj object{};
  object.rwq.in = wq;
  object.rwq.out = &facts;
  if (mlx5dv_init_obj(&object, MLX5DV_OBJ_RWQ) != 0) facts = {};
  return facts;
}

Result<void> check_wq(const WorkQueue &wq) {
  std::uint32_t index = 0;
  if (!user_index_of(wq.real, kind_wq, index))
    return refuse(wq.cq, "WQ", wq.wq_num, "of an unknown libmlx5", EINVAL);
  const mlx5dv_rwq facts = facts_of(wq.real);
  if (facts.dbrec == nullptr) return refuse(wq.cq, "WQ", wq.wq_num, "without buffers", EINVAL);
  // The legacy API has no other way to post, but rdma-core's has.
  if (load<std::uint32_t>(facts.dbrec) != 0)
    return refuse(wq.cq, "WQ", wq.wq_num, "receives have been posted", EBUSY);
  return {};
}

void enter(Context &context, CompletionQueue &cq, WorkQueue &wq) {
  auto fresh = std::make_unique<Endpoint>();
  const mlx5dv_rwq facts = facts_of(wq.real);
  fresh->wq = &wq;
  fresh->recv_cq = wq.cq;
  fresh->raw_packet = true;
  fresh->owns_receive = true;
  user_index_of(wq.real, kind_wq, fresh->user_index);
  ReceiveQueue &queue = fresh->receive;
  queue.buffer = static_cast<std::uint8_t *>(facts.buf);
  queue.entries = facts.wqe_cnt;
  queue.entry_bytes = facts.stride;
  queue.record = reinterpret_cast<std::uint32_t *>(facts.dbrec);
  queue.ids = std::make_unique<std::uint64_t[]>(queue.entries);
  if (wq.multi_packet) {
    queue.skip = segment_bytes;  // links entries of shared queues, and means nothing here
    std::memset(queue.buffer, 0, std::size_t{queue.entries} * queue.entry_bytes);
    queue.strides = 1u << wq.strides.single_wqe_log_num_of_strides;
    queue.log_stride_bytes = wq.strides.single_stride_log_num_of_bytes;
    queue.shift = wq.strides.use_shift == IBV_EXP_MP_RQ_2BYTES_SHIFT ? 2 : 0;
  }
  context.owned_endpoints.reserve(context.owned_endpoints.size() + 1);
  context.endpoints.set(fresh->user_index, fresh.get());
  if (wq.multi_packet) set_relaxed(cq.striding, cq.striding + 1);
  wq.direct = fresh.get();
  context.owned_endpoints.push_back(std::move(fresh));
}

std::vector<WorkQueue *> work_queues_on(ContextState &state, const ibv_cq *cq) {
  std::vector<WorkQueue *> found;
  const MutexGuard guard(state.mutex);
  state.work_queues.for_each([&](WorkQueue &wq) {
    if (wq.cq == cq) found.push_back(&wq);
  });
  return found;
}

std::vector<Candidate> candidates_on(ContextState &state, const ibv_cq *cq) {
  std::vector<Candidate> found;
  const MutexGuard guard(state.mutex);
  state.qp_pool.for_each([&](QpState &known) {
    ibv_qp *qp = known.qp.load(std::memory_order_relaxed);
    // Not by what qp points to: it may have been destroyed unseen.
    if (qp == nullptr || (known.send_cq != cq && known.recv_cq != cq)) return;
    found.push_back({qp, &known, known.send_cq == cq, known.recv_cq == cq});
  });
  return found;
}

CqRing ring_of(ContextState &state, const ibv_cq *cq) {
  const MutexGuard guard(state.mutex);
  const CqState *known = find_cq(&state, cq);
  return known != nullptr ? known->ring : CqRing{};
}

std::unique_ptr<CompletionQueue> open(const Context &context, ibv_cq *cq) {
  mlx5dv_cq facts{};
  mlx5dv_obj object{};
  object.cq.in = cq;
  object.cq.out = &facts;
  if (mlx5dv_init_obj(&object, MLX5DV_OBJ_CQ) != 0) return nullptr;
  auto fresh = std::make_unique<CompletionQueue>();
  fresh->cq = cq;
  fresh->entries = static_cast<std::uint8_t *>(facts.buf) + (facts.cqe_size - cqe_bytes);
  fresh->mask = facts.cqe_cnt - 1;
  fresh->log_bytes = static_cast<std::uint32_t>(std::countr_zero(facts.cqe_size));
  fresh->log_entries = static_cast<std::uint32_t>(std::countr_zero(facts.cqe_cnt));
  fresh->record = reinterpret_cast<std::uint32_t *>(facts.dbrec);
  fresh->consumer = be(load<std::uint32_t>(facts.dbrec)) & 0xffffff;
  fresh->arm_count = be(load<std::uint32_t>(facts.dbrec + 1)) >> 28 & 3;
  fresh->number = facts.cqn;
  fresh->page = static_cast<std::uint8_t *>(facts.cq_uar);
  fresh->endpoints = &context.endpoints;
  return fresh;
}

template <class T>
void drop(std::vector<std::unique_ptr<T>> &all, const T *one) {
  std::erase_if(all, [one](const auto &owned) { return owned.get() == one; });
}

void drop_unread(const Context &context, const Endpoint &endpoint) {
  for (const auto &own : context.owned_cqs)
    if (own->cq == endpoint.send_cq || own->cq == endpoint.recv_cq)
      drop_completions(*own, endpoint.user_index);
}

void remove(Context &context, Endpoint *endpoint, std::uint32_t number) {
  // The index may have been given out again.
  if (context.endpoints.find(endpoint->user_index) == endpoint)
    context.endpoints.set(endpoint->user_index, nullptr);
  context.queue_pairs.set(number, nullptr);
  drop(context.owned_endpoints, endpoint);
}

void forget_locked(Context &context, WorkQueue &wq) noexcept {
  Endpoint *endpoint = wq.direct;
  if (endpoint == nullptr) return;
  wq.direct = nullptr;
  drop_unread(context, *endpoint);
  if (context.endpoints.find(endpoint->user_index) == endpoint)
    context.endpoints.set(endpoint->user_index, nullptr);
  if (CompletionQueue *cq = find(&context, wq.cq); cq != nullptr && wq.multi_packet)
    set_relaxed(cq->striding, cq->striding - 1);
  drop(context.owned_endpoints, endpoint);
}

}  // namespace

Context &need_context(ContextState &state) {
  const MutexGuard guard(state.mutex);
  if (state.direct == nullptr) {
    // Underneath, where it expects to be.
    lane::install(state);
    auto fresh = std::make_shared<Context>();
    ibv_context_ops &ops = state.operations();
    fresh->post_send = ops.post_send;
    fresh->post_recv = state.post_recv.load(std::memory_order_relaxed);
    fresh->poll_cq = ops.poll_cq;
    fresh->req_notify_cq = ops.req_notify_cq;
    state.direct.set(fresh);
    replace(ops.post_send, &post_send);
    translate::serve_receives(state, &post_recv);
    replace(ops.poll_cq, &poll_cq);
    replace(ops.req_notify_cq, &req_notify_cq);
  }
  return *state.direct;
}

Result<CompletionQueue *> own(ContextState &state, ibv_cq *cq) {
  Context &context = need_context(state);
  const MutexGuard guard(context.mutex);
  if (CompletionQueue *known = find(&context, cq)) return known;

  const auto candidates = candidates_on(state, cq);
  for (const Candidate &c : candidates)
    if (const auto fits = check_side(cq, c); !fits) return fits.failure();
  const auto work_queues = work_queues_on(state, cq);
  for (const WorkQueue *wq : work_queues)
    if (const auto fits = check_wq(*wq); !fits) return fits.failure();
  // All memory first. From here on only the tables can fail, and what they hold
  // of queues that are not ours yet is harmless.
  const ibv_device_attr &device = state.device();
  context.owned_cqs.reserve(context.owned_cqs.size() + 1);
  auto fresh = open(context, cq);
  if (fresh == nullptr) return refuse(cq, "CQ", cq->handle, "not of mlx5", EINVAL);
  const CqRing ring = ring_of(state, cq);
  // Of those that were created as extended ones, a program knows its own only.
  if (reinterpret_cast<const ibv_cq_ex *>(cq)->start_poll != nullptr && !ring.ours)
    return refuse(cq, "CQ", cq->handle, "polled by ibv_start_poll()", EINVAL);
  fresh->system_time = ring.stamps == CqRing::Stamps::system_time;
  std::vector<Endpoint *> entered;
  try {
    for (const Candidate &c : candidates) entered.push_back(&enter(context, c, device));
    for (WorkQueue *wq : work_queues) enter(context, *fresh, *wq);
    context.cqs.set(cq->handle, fresh.get());
    const MutexGuard table(state.mutex);
    CqState &known = need_cq(state, cq);
    known.direct.store(fresh.get(), std::memory_order_release);
    known.poll.store(exp_poll, std::memory_order_release);
  } catch (...) {
    context.cqs.set(cq->handle, nullptr);
    for (WorkQueue *wq : work_queues) forget_locked(context, *wq);
    for (Endpoint *endpoint : entered) {
      if (endpoint->qp->send_cq == cq) endpoint->owns_send = false;
      if (endpoint->qp->recv_cq == cq) endpoint->owns_receive = false;
    }
    throw;
  }
  context.owned_cqs.push_back(std::move(fresh));
  return context.owned_cqs.back().get();
}

Result<void> adopt(ContextState &state, ibv_qp *qp) {
  if (state.direct == nullptr) return {};
  Context &context = *state.direct;
  const MutexGuard guard(context.mutex);
  // One that was destroyed unseen.
  if (Endpoint *stale = context.queue_pairs.find(qp->qp_num)) remove(context, stale, qp->qp_num);
  Candidate c{qp, nullptr, qp->send_cq != nullptr && find(&context, qp->send_cq) != nullptr,
              qp->recv_cq != nullptr && find(&context, qp->recv_cq) != nullptr};
  if (!c.send && !c.receive) return {};
  c.qp_state = find_qp(&state, qp);
  if (c.qp_state == nullptr) return Error{EINVAL};
  if (const auto fits = check_side(c.send ? qp->send_cq : qp->recv_cq, c); !fits) return fits;
  enter(context, c, state.device());
  return {};
}

Result<void> adopt(ContextState &state, WorkQueue &wq) {
  if (state.direct == nullptr) return {};
  Context &context = *state.direct;
  const MutexGuard guard(context.mutex);
  CompletionQueue *cq = find(&context, wq.cq);
  if (cq == nullptr || wq.direct != nullptr) return {};
  if (const auto fits = check_wq(wq); !fits) return fits;
  enter(context, *cq, wq);
  return {};
}

void after_modify(ContextState &state, WorkQueue &wq) noexcept {
  Endpoint *endpoint = wq.direct;
  if (endpoint == nullptr) return;
  if (wq.state == IBV_EXP_WQS_RESET) {
    const MutexGuard guard(state.direct->mutex);
    drop_unread(*state.direct, *endpoint);
  }
  const Guard guard(endpoint->receive.lock);
  if (wq.state == IBV_EXP_WQS_RESET) endpoint->receive.reset();
  // libmlx5 has just cleared the record.
  if (wq.state == IBV_EXP_WQS_RDY) endpoint->receive.ring_doorbell();
}

void forget(ContextState &state, WorkQueue &wq) noexcept {
  if (state.direct == nullptr) return;
  const MutexGuard guard(state.direct->mutex);
  forget_locked(*state.direct, wq);
}

void forget(ContextState &state, const ibv_qp *qp, std::uint32_t number) noexcept {
  if (state.direct == nullptr) return;
  Context &context = *state.direct;
  const MutexGuard guard(context.mutex);
  Endpoint *endpoint = context.queue_pairs.find(number);
  if (endpoint == nullptr || endpoint->qp != qp) return;
  drop_unread(context, *endpoint);
  remove(context, endpoint, number);
}

void after_modify(ContextState &state, ibv_qp *qp, ibv_qp_state to) noexcept {
  Endpoint *endpoint = find(state.direct.get(), qp);
  if (endpoint == nullptr) return;
  if (to == IBV_QPS_RESET) {
    {
      const MutexGuard guard(state.direct->mutex);
      drop_unread(*state.direct, *endpoint);
    }
    if (endpoint->owns_send) {
      const Guard guard(endpoint->send.lock);
      endpoint->send.reset();
    }
    if (endpoint->owns_receive) {
      const Guard guard(endpoint->receive.lock);
      endpoint->receive.reset();
      endpoint->receive.held_for = endpoint->raw_packet ? qp : nullptr;
    }
  }
  // libmlx5 has just written the record of a raw packet QP from its own count.
  if (to == IBV_QPS_RTR && endpoint->owns_receive) {
    const Guard guard(endpoint->receive.lock);
    endpoint->receive.ring_doorbell();
  }
}

void forget_cq(ContextState &state, const ibv_cq *cq, std::uint32_t handle) noexcept {
  if (state.direct == nullptr) return;
  Context &context = *state.direct;
  const MutexGuard guard(context.mutex);
  CompletionQueue *own = context.cqs.find(handle);
  if (own == nullptr || own->cq != cq) return;
  context.cqs.set(handle, nullptr);
  drop(context.owned_cqs, own);
}

bool is_owned(const ContextState *state, const ibv_cq *cq) noexcept {
  return state != nullptr && find(state->direct.get(), cq) != nullptr;
}

void count_event(const ContextState *state, const ibv_cq *cq) noexcept {
  CompletionQueue *own = state != nullptr ? find(state->direct.get(), cq) : nullptr;
  if (own == nullptr) return;
  const Guard guard(own->lock);
  ++own->arm_count;
}

}  // namespace ibvexp::direct
