#include "translate/queue/driven.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/real.h"
#include "table/feature_rows.h"
#include "table/options.h"
#include "translate/convert/legacy_grants.h"
#include "translate/queue/engine/key_change.h"
#include "translate/queue/engine/open.h"
#include "translate/queue/fronts.h"
#include "translate/queue/on_rings.h"

namespace ibvexp::queue {

namespace {

using engine::Endpoint;
using engine::Guard;

// The words of the legacy layout that the engine counts with.
engine::ReceiveCounters &counters(std::uint32_t &head) {
  return reinterpret_cast<engine::ReceiveCounters &>(head);
}
static_assert(offsetof(legacy::WorkQueue4, tail) == offsetof(legacy::WorkQueue4, head) + 4);
static_assert(offsetof(legacy::WorkQueue3, tail) == offsetof(legacy::WorkQueue3, head) + 4);
static_assert(offsetof(legacy::Srq, tail) == offsetof(legacy::Srq, head) + 4);
static_assert(sizeof(engine::ReceiveCounters) == 8 && sizeof(engine::SharedCounters) == 8);

engine::Transport transport_of(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_UC: return engine::Transport::uc;
    case IBV_QPT_UD: return engine::Transport::ud;
    case IBV_QPT_RAW_PACKET: return engine::Transport::raw_packet;
    case IBV_QPT_XRC_SEND: return engine::Transport::xrc;
    case IBV_QPT_DRIVER: return engine::Transport::dc;
    default: return engine::Transport::rc;
  }
}

template <class Front>
void join(Front *front) {
  __atomic_store_n(&front->own.joined, true, __ATOMIC_RELEASE);
}

// Null where libmlx5 drives it.
engine::CompletionQueue *queue_of(const CqFront *front) {
  return front != nullptr ? front->own.engine : nullptr;
}
// The engine's queue of an SRQ that the engine drives.
engine::SharedQueue *queue_of(const ibv_srq *srq) { return &front_of(srq)->own.engine->queue; }

// Its unread completions, in either queue.
void clean(Endpoint &of) {
  const auto [send, receive] = of.completes_on;
  if (send != nullptr) engine::clean(*send, of);
  if (receive != nullptr && receive != send) engine::clean(*receive, of);
}

// With the driver's mutex. libmlx5 gives a number out again before we know that it is
// free: what is left of its former bearer has to be gone before anything completes under
// it.
[[gnu::always_inline]] inline void enter(Driver &driver, Endpoint &endpoint) {
  const auto place = driver.endpoints.need_place(endpoint.user_index());
  if (Endpoint *const former = place.get()) clean(*former);
  place.set(&endpoint);
  endpoint.place = place;
}

// With the driver's mutex. From here on completions of those queues find it; any may be null.
[[gnu::always_inline]] inline void attach(Driver &driver, Endpoint &endpoint, CqFront *sends_on,
                                          CqFront *receives_on, SrqFront *srq) {
  engine::CompletionQueue *const of_sends = queue_of(sends_on);
  engine::CompletionQueue *const of_receives = queue_of(receives_on);
  endpoint.completes_on[0] = of_sends;
  endpoint.completes_on[1] = of_receives;
  enter(driver, endpoint);
  if (of_sends != nullptr) join(sends_on);
  if (of_receives != nullptr) join(receives_on);
  if (srq != nullptr) join(srq);
}

// One that was entered.
[[gnu::always_inline]] inline void forget(Driver &driver, Endpoint &endpoint) {
  const MutexGuard guard(driver.mutex);
  // Otherwise the number has been given out again, and the queues are clean.
  if (endpoint.place.get() != &endpoint) return;
  clean(endpoint);
  endpoint.place.set(nullptr);
}

Driver &driver_of(ibv_context *context) { return *attached(context)->driver; }

}  // namespace

void start_driving(ContextState &state) { state.driver = std::make_shared<Driver>(); }

void drive(ContextState &state, CqFront &front, const mlx5dv_cq &of) {
  if (state.driver == nullptr || of.buf == nullptr) return;
  const CqState *known = front.own.plain ? nullptr : find_cq(&state, front.own.back);
  auto fresh = std::make_unique<engine::CompletionQueue>();
  fresh->endpoints = &state.driver->endpoints;
  if (known != nullptr) fresh->stamps = known->stamps;
  fresh->reports_strides =
      effective_now(answer_of<FeatureId::mprq_poll_mp_wr>).verdict != Verdict::unsupported;
  fresh->cq = &front.shown;
  fresh->consumed = &front.legacy.cons_index;
  engine::open(*fresh, of);
  front.own.engine = front.own.alone = fresh.release();
}

void reopen(CqFront &front, const mlx5dv_cq &of) noexcept {
  if (front.own.ring != nullptr) change_ring(front, nullptr, 0);
  if (front.own.engine != nullptr) engine::open(*front.own.engine, of);
}

void drive(ContextState &state, SrqFront &front, const mlx5dv_srq &of, std::uint32_t max_pieces) {
  if (state.driver == nullptr || of.buf == nullptr) return;
  auto fresh = std::make_unique<engine::SharedReceiver>();
  fresh->queue.counters = reinterpret_cast<engine::SharedCounters *>(&front.legacy.head);
  fresh->queue.counter = &front.legacy.counter;
  engine::open(fresh->queue, of, of.tail, max_pieces);
  fresh->endpoint.srq = &front.shown;
  fresh->endpoint.shared = &fresh->queue;
  fresh->endpoint.set_flags();
  front.own.engine = fresh.release();
}

void complete_on(ContextState &state, SrqFront &front, const ibv_cq *cq) {
  if (!is_driven(&front)) return;
  Endpoint &endpoint = front.own.engine->endpoint;
  endpoint.set_user_index(resource_of(front).number);
  const MutexGuard guard(state.driver->mutex);
  front.legacy.cq = const_cast<ibv_cq *>(shown(cq));
  attach(*state.driver, endpoint, nullptr, before(cq), nullptr);
}

namespace {

// libmlx5 takes the lowest that is free; the highest of all means none. With the driver's mutex.
std::uint32_t index_from_above(const Driver &driver) {
  std::uint32_t index = 0xfffffe;
  while (driver.endpoints.find(index) != nullptr) --index;
  return index;
}

}  // namespace

void complete_in_strides(ContextState &state, SrqFront &front, const ibv_cq *cq,
                         const ibv_exp_mp_wr &strides) {
  engine::SharedReceiver &of = *front.own.engine;
  of.queue.strides_used = make_zeros<std::uint32_t>(static_cast<std::size_t>(front.legacy.max));
  of.endpoint.receive.strides = 1u << strides.log_num_of_strides;
  of.endpoint.receive.log_stride_bytes = strides.log_stride_size;
  of.endpoint.set_flags();
  front.legacy.cq = shown(const_cast<ibv_cq *>(cq));
  const MutexGuard guard(state.driver->mutex);
  of.endpoint.set_user_index(index_from_above(*state.driver));
  resource_of(front).number = of.endpoint.user_index();
  attach(*state.driver, of.endpoint, nullptr, before(cq), &front);
}

void show_as(SrqFront &front, ibv_srq *shown) noexcept {
  front.own.held = shown;
  if (is_driven(&front)) front.own.engine->endpoint.srq = shown;
}

namespace {

// whole: both sides, as of most.
template <bool whole>
void drive_sides(ContextState &state, QpFront &front, const mlx5dv_qp &of, const QpMade &made) {
  const ibv_qp &shown = front.shown;
  // First what may call: the rest stays in registers.
  const ibv_device_attr &device = state.device();
  const ObjectLayout layout = process_options().layout;
  auto fresh = std::make_unique<Endpoint>();
  fresh->set_user_index(resource_of(front).number);
  fresh->qp = &front.shown;
  fresh->srq = shown.srq;
  const ibv_qp_type type = front.own.back->qp_type;
  fresh->frames = type == IBV_QPT_RAW_PACKET;
  const bool sends = whole || made.by.send == By::engine;
  const bool receives = whole || made.by.receive == By::engine;
  if (shown.srq != nullptr && receives) fresh->shared = &made.ends.shared->own.engine->queue;
  fresh->set_flags();

  engine::QpFacts facts;
  facts.transport = transport_of(type);
  facts.granted = made.granted;
  facts.granted.max_inline_data =
      std::min(made.granted.max_inline_data, translate::largest_inline_data(type));
  facts.number = shown.qp_num;
  facts.all_signaled = made.signal_all;
  facts.single_threaded = made.single_threaded;
  facts.atomics = device.atomic_cap != IBV_ATOMIC_NONE;
  facts.checksums = (device.device_cap_flags & IBV_DEVICE_RAW_IP_CSUM) != 0;
  facts.channel = made.channel;
  with_queues(front.legacy, layout, [&](auto &queues) {
    fresh->send.posted = &queues.hot.scur_post;
    fresh->receive.counters = &counters(queues.rq.head);
  });
  if (sends) engine::open(fresh->send, of, facts);
  if (receives) engine::open(fresh->receive, of, facts);
  if (fresh->frames) fresh->receive.held_for = &front.shown;
  fresh->send.always_burst = made.signal_all ? IBV_EXP_QP_BURST_SIGNALED : 0;
  fresh->send.refused_burst = ~std::uint32_t{IBV_EXP_QP_BURST_SIGNALED |
                                             IBV_EXP_QP_BURST_SOLICITED | IBV_EXP_QP_BURST_FENCE};
  if (fresh->frames && facts.checksums) fresh->send.refused_burst &= ~IBV_EXP_QP_BURST_IP_CSUM;
  fresh->send.refused_flags = state.refused_send_flags;
  fresh->send.max_tso_header = made.max_tso_header;
  fresh->send.windows = made.windows;
  fresh->send.qp = &front.shown;
  engine::allow_key_changes(fresh->send, state, made.max_umr_pieces);

  const MutexGuard guard(state.driver->mutex);
  attach(*state.driver, *fresh, sends ? made.ends.send : nullptr,
         receives ? made.ends.receive : nullptr, receives ? made.ends.shared : nullptr);
  front.own.send = sends ? &fresh->send : nullptr;
  front.own.receive = receives ? &fresh->receive : nullptr;
  front.own.engine = fresh.release();
}

}  // namespace

void drive(ContextState &state, QpFront &front, const mlx5dv_qp &of, const QpMade &made) {
  const bool whole = made.by.send == By::engine && made.by.receive == By::engine;
  if (whole) drive_sides<true>(state, front, of, made);
  else drive_sides<false>(state, front, of, made);
}

void drive(ContextState &state, WqFront &front, const mlx5dv_rwq &of, std::uint32_t max_pieces,
           const ibv_exp_wq_mp_rq *strides) {
  auto fresh = std::make_unique<Endpoint>();
  fresh->set_user_index(resource_of(front).number);
  fresh->number = front.shown.wq_num;
  fresh->frames = true;
  engine::ReceiveQueue &queue = fresh->receive;
  with_queues(front.legacy, process_options().layout,
              [&](auto &queues) { queue.counters = &counters(queues.rq.head); });
  engine::open(queue, of, max_pieces);
  if (strides != nullptr) {
    queue.skip = engine::segment_bytes;  // links entries of shared queues, and means nothing here
    std::memset(queue.buffer, 0, std::size_t{queue.entries()} * queue.entry_bytes);
    queue.strides = 1u << strides->single_wqe_log_num_of_strides;
    queue.log_stride_bytes = strides->single_stride_log_num_of_bytes;
    queue.shift = strides->use_shift == IBV_EXP_MP_RQ_2BYTES_SHIFT ? 2 : 0;
  }
  fresh->set_flags();
  const MutexGuard guard(state.driver->mutex);
  attach(*state.driver, *fresh, nullptr, front_of(front.shown.cq), nullptr);
  front.own.engine = fresh.release();
}

namespace {

// choose is called with the mutex.
template <class Choose>
std::shared_ptr<Endpoint> drive_target_as(ContextState &state, ibv_exp_dct *dct, Choose choose) {
  std::shared_ptr<Endpoint> fresh(new Endpoint, [driver = state.driver](Endpoint *gone) {
    if (gone->place) forget(*driver, *gone);
    delete gone;
  });
  fresh->dct = dct;
  fresh->srq = dct->srq;
  fresh->shared = queue_of(dct->srq);
  fresh->set_flags();
  const MutexGuard guard(state.driver->mutex);
  fresh->set_user_index(choose());
  attach(*state.driver, *fresh, nullptr, front_of(dct->cq), front_of(dct->srq));
  return fresh;
}

}  // namespace

std::shared_ptr<Endpoint> drive_target(ContextState &state, const ibv_qp *back, ibv_exp_dct *dct) {
  return drive_target_as(state, dct, [&] { return resource_before(back).number; });
}

std::shared_ptr<Endpoint> drive_target(ContextState &state, ibv_exp_dct *dct) {
  return drive_target_as(state, dct, [&] { return index_from_above(*state.driver); });
}

ibv_qp *as_guest(ContextState &state, const Joining &joining, ibv_qp *made,
                 const ibv_cq *receives_on, const ibv_srq *srq) noexcept {
  if (made == nullptr || joining.receives() != By::engine) return made;
  try {
    auto fresh = std::make_unique<Endpoint>();
    fresh->set_user_index(resource_before(made).number);
    fresh->qp = made;
    fresh->srq = &before(srq)->shown;
    fresh->shared = queue_of(fresh->srq);
    fresh->set_flags();
    const MutexGuard guard(state.driver->mutex);
    std::unique_ptr<Endpoint> &place = state.driver->guests[made];
    attach(*state.driver, *fresh, nullptr, before(receives_on), before(srq));
    place = std::move(fresh);
    return made;
  } catch (const std::bad_alloc &) {
    real().ibv_destroy_qp(made);
    errno = ENOMEM;
    return nullptr;
  }
}

void reset(const QpFront &front) noexcept {
  Endpoint &endpoint = *front.own.engine;
  clean(endpoint);
  {
    const Guard guard(endpoint.send.lock);
    endpoint.send.reset();
  }
  {
    const Guard guard(endpoint.receive.lock);
    endpoint.receive.reset();
    endpoint.receive.held_for = endpoint.frames ? &front.shown : nullptr;
  }
  if (front.own.send != nullptr) endpoint.send.select(false);
}

// libmlx5 has just written the record of a raw packet QP from its own count.
void ring_again(const QpFront &front) noexcept {
  Endpoint &endpoint = *front.own.engine;
  if (front.own.receive == nullptr || endpoint.receive.buffer == nullptr) return;
  const Guard guard(endpoint.receive.lock);
  endpoint.receive.ring();
}

void follow(ContextState &state, const ibv_qp *guest, ibv_qp_state to) noexcept {
  if (state.driver == nullptr || to != IBV_QPS_RESET) return;
  const MutexGuard guard(state.driver->mutex);
  const auto found = state.driver->guests.find(guest);
  if (found != state.driver->guests.end()) clean(*found->second);
}

void follow(WqFront &front, ibv_exp_wq_state to) noexcept {
  if (!is_driven(&front)) return;
  Endpoint &endpoint = *front.own.engine;
  if (to == IBV_EXP_WQS_RESET) clean(endpoint);
  const Guard guard(endpoint.receive.lock);
  if (to == IBV_EXP_WQS_RESET) endpoint.receive.reset();
  // libmlx5 has just cleared the record.
  if (to == IBV_EXP_WQS_RDY) endpoint.receive.ring();
}

void remove_driven(QpFront &front) noexcept {
  Endpoint *const gone = front.own.engine;
  front.own.engine = nullptr;
  front.own.send = nullptr;
  front.own.receive = nullptr;
  forget(driver_of(front.shown.context), *gone);
  delete gone;
  give_back(front);
}

void remove(QpFront &front) noexcept {
  delete std::exchange(front.own.connection, nullptr);
  if (is_driven(&front)) remove_driven(front);
  else give_back(front);
}

void remove(WqFront &front) noexcept {
  if (Endpoint *const gone = std::exchange(front.own.engine, nullptr)) {
    forget(driver_of(front.shown.context), *gone);
    delete gone;
  }
  give_back(front);
}

void let_go(ContextState &state, const ibv_qp *guest) noexcept {
  if (state.driver == nullptr) return;
  std::unique_ptr<Endpoint> gone;
  {
    const MutexGuard guard(state.driver->mutex);
    auto node = state.driver->guests.extract(guest);
    if (node) gone = std::move(node.mapped());
  }
  if (gone != nullptr) forget(*state.driver, *gone);
}

void remove_more(CqFront &front) noexcept {
  if (front.own.ring != nullptr) change_ring(front, nullptr, 0);
  delete std::exchange(front.own.released, nullptr);
  delete std::exchange(front.own.beside, nullptr);
}

void remove_more(SrqFront &front) noexcept {
  delete std::exchange(front.own.strides, nullptr);
  delete std::exchange(front.own.released, nullptr);
  if (is_driven(&front) && front.own.engine->endpoint.place)
    forget(driver_of(front.shown.context), front.own.engine->endpoint);
}

}  // namespace ibvexp::queue
