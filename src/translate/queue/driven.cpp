#include "translate/queue/driven.h"

#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <limits>
#include <utility>

#include "base/log.h"
#include "base/real.h"
#include "table/feature_rows.h"
#include "table/options.h"
#include "trace/diagnose.h"
#include "translate/convert/legacy_grants.h"
#include "translate/queue/beside.h"
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

}  // namespace

bool is_used(const CqFront &front) noexcept {
  return engine::relaxed(front.own.joined) || front.own.joining != 0 || front.own.ring != nullptr ||
         engine::relaxed(front.legacy.cons_index) != 0;
}

namespace {

bool is_used(const SrqFront &front) {
  return front.own.joined || front.own.joining != 0 || front.own.engine->queue.is_used();
}

template <class Front>
bool is_driven(const Front *front) {
  return front != nullptr && front->own.engine != nullptr;
}

// The object is libmlx5's from here on. A thread that is just using it may still see what
// the engine had.
void release(SrqFront &front) {
  front.own.released = front.own.engine;
  front.own.engine = nullptr;
}

// Receives were posted, and no queue pair has taken any: libmlx5 gets them again, into the
// same entries. False: it cannot be done.
bool hand_over(SrqFront &front) {
  if (front.own.joined || front.own.joining != 0) return false;
  engine::SharedQueue &queue = front.own.engine->queue;
  const Guard guard(queue.lock);
  if (!queue.posted) return *queue.counter == 0;
  const auto count = static_cast<std::uint32_t>(queue.counters->head);
  for (std::uint32_t index = 0; index < count; ++index) {
    ibv_sge pieces[engine::max_segments];
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.wr_id = queue.ids[index];
    wr.sg_list = pieces;
    const std::uint8_t *at = queue.scatter(index);
    for (std::uint32_t i = 0; i < std::min(queue.places(), engine::max_segments);
         ++i, at += engine::segment_bytes) {
      const auto length = engine::load_be<std::uint32_t>(at);
      const auto key = engine::load_be<std::uint32_t>(at + 4);
      if (length == 0 && key == engine::no_key) break;
      pieces[wr.num_sge++] = {engine::load_be<std::uint64_t>(at + 8), length, key};
    }
    if (front.own.inner->post_srq_recv(front.own.back, &wr, &bad) != 0) return false;
  }
  queue.counters->head = queue.counters->tail;  // full, for who is late
  return true;
}

// No other thread may release it while something is created that the engine will drive.
template <class Front>
Front *reserve(Front *front) {
  if (front != nullptr) ++front->own.joining;
  return front;
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
  const auto place = driver.endpoints.place(endpoint.user_index());
  if (!place) return driver.endpoints.set(endpoint.user_index(), &endpoint);
  if (Endpoint *const former = place.get()) clean(*former);
  place.set(&endpoint);
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

[[gnu::always_inline]] inline void forget(Driver &driver, Endpoint &endpoint) {
  const MutexGuard guard(driver.mutex);
  const auto place = driver.endpoints.place(endpoint.user_index());
  // Otherwise the number has been given out again, and the queues are clean.
  if (!place || place.get() != &endpoint) return;
  clean(endpoint);
  place.set(nullptr);
}

Driver &driver_of(ibv_context *context) { return *attached(context)->driver; }

// The kernel's half of ibv_resize_cq(), without libmlx5's: the ring of that many entries
// is the queue's from here on. 0 or an errno value.
int resize_in_kernel(ibv_cq *back, const std::uint8_t *ring, std::uint32_t entries,
                     std::uint32_t entry_bytes) {
  struct {
    ib_uverbs_cmd_hdr head;
    std::uint8_t request[sizeof(ib_uverbs_resize_cq)];  // libibverbs writes it
    mlx5_ib_resize_cq driver;
  } command{};
  ib_uverbs_resize_cq_resp answer{};
  static auto *const resize =
      reinterpret_cast<int (*)(ibv_cq *, int, void *, std::size_t, void *, std::size_t)>(
          find_real("ibv_cmd_resize_cq", nullptr));
  if (resize == nullptr) {
    log(LogLevel::warn, "ibv_resize_cq: this libibverbs does not export ibv_cmd_resize_cq");
    return ENOTSUP;
  }
  command.driver.buf_addr = reinterpret_cast<std::uintptr_t>(ring);
  command.driver.cqe_size = static_cast<std::uint16_t>(entry_bytes);
  return resize(back, static_cast<int>(entries - 1), &command, sizeof(command), &answer,
                sizeof(answer));
}

// What libmlx5 does with memory of the device: after ibv_fork_init() a child does not get it, so
// that the parent's pages stay where they are.
void keep_from_child(void *memory, std::size_t bytes, const char *how) {
  auto *const keep = reinterpret_cast<int (*)(void *, std::size_t)>(find_real(how, "IBVERBS_1.1"));
  if (keep != nullptr && keep(memory, bytes) != 0)
    log(LogLevel::warn, "ibv_resize_cq: %s failed: not safe across fork()", how);
}

// With entries that the device has not written. Null if there is no memory.
std::uint8_t *make_ring(std::size_t bytes, std::uint32_t entry_bytes) {
  void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto *ring = static_cast<std::uint8_t *>(memory);
  for (std::size_t at = entry_bytes; at <= bytes; at += entry_bytes)
    ring[at - 1] = MLX5_CQE_INVALID << 4;
  keep_from_child(memory, bytes, "ibv_dontfork_range");
  return ring;
}

void free_ring(std::uint8_t *ring, std::size_t bytes) {
  keep_from_child(ring, bytes, "ibv_dofork_range");
  munmap(ring, bytes);
}

void change_ring(CqFront &front, std::uint8_t *ring, std::size_t bytes) {
  if (front.own.ring != nullptr) free_ring(front.own.ring, front.own.ring_bytes);
  front.own.ring = ring;
  front.own.ring_bytes = bytes;
}

}  // namespace

void start_driving(ContextState &state) { state.driver = std::make_shared<Driver>(); }

void Joining::decide(ContextState &state, const Ends &ends, ibv_cq **send, ibv_cq **receive,
                     const ibv_srq *srq, By wanted) noexcept {
  CqFront *const sending = ends.send, *const receiving = ends.receive;
  SrqFront *const shared = ends.shared;
  if (shared != nullptr && shared->own.strides != nullptr && wanted == By::libmlx5) {
    log(LogLevel::warn, "SRQ %#x is one of strides: only QPs of ibv_create_qp() receive from it",
        shared->legacy.srqn);
    error_ = ENOTSUP;
    return;
  }
  const MutexGuard guard(driver_->mutex);
  // Completions that the engine is to have, although libmlx5 has those of others.
  const auto share = [&](CqFront *front) {
    if (front != nullptr && !is_driven(front)) bring_engine(state, *front);
  };
  if (wanted == By::engine && (shared == nullptr || is_driven(shared))) share(sending);
  if (wanted == By::engine ? shared == nullptr || is_driven(shared)
                           : is_driven(shared) && is_used(*shared))
    share(receiving);
  const auto fits = [](const void *object, bool driven) { return object == nullptr || driven; };
  bool receives = wanted == By::engine && fits(at(receive), is_driven(receiving)) &&
                  fits(srq, is_driven(shared));
  const bool sends = wanted == By::engine && fits(at(send), is_driven(sending)) &&
                     (at(send) != at(receive) || receives);
  if (!receives && is_driven(shared)) {
    const bool unused = !is_used(*shared);
    if (!unused && is_driven(receiving)) {
      receives = true;
    } else if (unused || hand_over(*shared)) {
      queue::release(*shared);
    } else {
      log(LogLevel::warn,
          "SRQ %#x: QPs of ibv_create_qp() receive from it: a QP that completes on an ibv_cq_ex "
          "cannot",
          shared->legacy.srqn);
      error_ = ENOTSUP;
      return;
    }
  }
  by_ = {sends ? By::engine : By::libmlx5, receives ? By::engine : By::libmlx5};
  reserves_ = sends || receives;
  if (sends) reserved_[0] = reserve(sending);
  if (receives) {
    reserved_[1] = reserve(receiving);
    reserved_srq_ = reserve(shared);
  }
  const auto find_ring = [&](ibv_cq **at, CqFront *front, bool engine) {
    if (front == nullptr || error_ != 0) return;
    ibv_cq *const ring = engine ? front->own.back : ring_of_libmlx5(state, *front);
    if (ring != nullptr) *at = ring;
    else error_ = errno != 0 ? errno : ENOMEM;
  };
  find_ring(send, sending, sends);
  find_ring(receive, receiving, receives);
}

void Joining::release() noexcept {
  const MutexGuard guard(driver_->mutex);
  for (CqFront *front : reserved_)
    if (front != nullptr) --front->own.joining;
  if (reserved_srq_ != nullptr) --reserved_srq_->own.joining;
}

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
    forget(*driver, *gone);
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

int resize(CqFront &front, int cqe) noexcept {
  constexpr std::int64_t most_bytes = std::numeric_limits<int>::max();
  if (cqe < 0 || std::int64_t{cqe} * 64 > most_bytes) return EINVAL;
  engine::CompletionQueue &queue = *front.own.engine;
  const std::uint32_t entries = std::bit_ceil(static_cast<std::uint32_t>(cqe) + 1);
  const Guard guard(queue.lock);
  if (entries == queue.size) return 0;
  const std::size_t bytes = std::size_t{entries} * queue.entry_bytes;
  std::uint8_t *const ring = make_ring(bytes, queue.entry_bytes);
  if (ring == nullptr) return ENOMEM;
  const int error = resize_in_kernel(front.own.back, ring, entries, queue.entry_bytes);
  if (error != 0) {
    free_ring(ring, bytes);
    return error;
  }
  if (!engine::move_to(queue, ring, entries))
    log(LogLevel::error, "ibv_resize_cq: CQ %#x: the device has not closed the old ring",
        front.legacy.cqn);
  change_ring(front, ring, bytes);
  front.shown.cqe = static_cast<int>(entries - 1);
  mlx5dv_cq facts = facts_of(front.own.back);
  correct(front, facts);
  fill(front, facts);
  return 0;
}

void correct(const CqFront &front, mlx5dv_cq &facts) noexcept {
  if (front.own.ring == nullptr) return;
  facts.buf = front.own.ring;
  facts.cqe_cnt = static_cast<std::uint32_t>(front.shown.cqe) + 1;
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

void remove(CqFront &front) noexcept {
  if (front.own.ring != nullptr) change_ring(front, nullptr, 0);
  delete front.own.engine;
  delete front.own.released;
  delete front.own.beside;
  front.own.engine = front.own.alone = front.own.released = nullptr;
  front.own.arms[0] = front.own.arms[1] = nullptr;
  front.own.beside = nullptr;
  give_back(front);
}

void remove(SrqFront &front) noexcept {
  delete std::exchange(front.own.strides, nullptr);
  engine::SharedReceiver *const gone = std::exchange(front.own.engine, nullptr);
  if (gone != nullptr && front.legacy.cq != nullptr)
    forget(driver_of(front.shown.context), gone->endpoint);
  delete gone;
  delete std::exchange(front.own.released, nullptr);
  give_back(front);
}

}  // namespace ibvexp::queue
