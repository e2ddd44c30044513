#include "engine/engine.h"

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <ctime>
#include <new>
#include <utility>

#include "base/log.h"
#include "base/thread.h"
#include "engine/callers.h"
#include "engine/clock.h"
#include "engine/doorbells.h"
#include "engine/rest.h"
#include "engine/thread_priority.h"
#include "engine/traps.h"
#include "fault/faults.h"
#include "model/counters.h"
#include "model/device.h"
#include "model/eth_flow.h"
#include "model/eth_queue.h"
#include "model/transmit.h"
#include "model/udp_wire.h"

namespace softhca {

namespace {

// A QP stays on the list of active ones this long after its last doorbell.
constexpr u64 cooling_ns = 5'000'000;
// Doorbell registers show nearly every post to an idle QP; the sweep over
// doorbell records finds the rest. With few QPs every step checks all records; with many
// it checks one per this time, so that the cost does not depend on the rate of steps and no
// QP waits longer than this times their number. A post that only the sweep finds means that
// registers were overwritten: then all records are checked, some in every step.
constexpr size_t sweep_all_below = 64;
constexpr u64 sweep_visit_ns = 2500;
constexpr size_t sweep_eager_per_step = 16;
constexpr size_t sweep_burst = 256;  // at most, after a long pause
constexpr size_t sweep_prefetch = 4;
constexpr u32 receive_budget = 256;  // records handled per step
// The engine thread pauses while application threads run the device.
constexpr u64 application_drives_ns = 300'000;
constexpr u64 event_mode_ns = 2'000'000;
// A thread that has polled in vain for so long, and more than once or twice, yields its processor
// to the peer. Longer than an answer takes from another processor.
constexpr u64 max_wait_ns = 4'000;
constexpr u32 looks_before_giving_way = 4;

std::atomic<u64> g_last_hook_ns{0};
std::atomic<bool> g_running{false};
std::atomic<bool> g_inline_step{true};  // `inline_step` of the configuration
bool g_faults;                          // any are configured. Device lock held
std::atomic<u32> g_generation{0};       // a forked child's engine is another one
void (*g_cm_receive)(const PacketHeader &, const u8 *);
bool (*g_cm_tick)(u64);
u64 (*g_cm_due)(u64);
// The engine thread rests until something wakes it.
std::atomic<bool> g_resting{false};
std::atomic<bool> g_sprung{false};  // a trap fired since the thread last checked

bool doorbell_rung(const IdleDoorbell &d) {
  return (d.watch_sent && static_cast<u16>(read_doorbell(&d.record[1])) != d.sent) ||
         (d.watch_received && static_cast<u16>(read_doorbell(&d.record[0])) != d.received);
}

void count_arrival(const Qp &qp, const PacketHeader &h) {
  const u32 port = std::max<u8>(qp.attr.port, 1);
  if (qp.device->up(port)) count_received(*qp.device, port, h);
}

void dispatch_multicast(Process &p, const PacketHeader &h, const u8 *payload) {
  const std::string group(reinterpret_cast<const char *>(h.dgid), 16);
  bool counted = false;
  for (const auto &[qpn, qp] : p.qps) {
    if (qp->multicast.count(group) == 0) continue;
    if (qp->block_multicast_loopback && h.src_slot == p.fabric->slot()) continue;
    if (!std::exchange(counted, true)) count_arrival(*qp, h);
    qp_receive_multicast(*qp, h, payload);
  }
}

// To each of them, of which one has the address.
void dispatch_general_services(Process &p, const PacketHeader &h, const u8 *payload) {
  for (const auto &[qpn, qp] : p.qps)
    if (qp->general_services) {
      if (h.dst_lid == 0 || h.dst_lid == qp->device->port(std::max<u8>(qp->attr.port, 1)).lid)
        count_arrival(*qp, h);
      qp_receive_request(*qp, h, payload);
    }
}

// A request that runs out of memory stops its queue pair only.
template <class Work>
bool bounded_by_memory(Qp &qp, Work work) {
  try {
    return work();
  } catch (const std::bad_alloc &) {
    SOFTHCA_LOG(error, "QP %#x: out of memory", qp.qpn);
    qp_fail(qp, EventType::qp_fatal);
    return true;
  }
}

void dispatch(Process &p, const PacketHeader &h, const u8 *payload) {
  if (h.kind == PacketKind::datagram && h.dst_qpn == multicast_qpn)
    return dispatch_multicast(p, h, payload);
  if (h.kind == PacketKind::datagram && h.dst_qpn == general_services_qpn)
    return dispatch_general_services(p, h, payload);
  if (h.kind == PacketKind::cm) {
    if (g_cm_receive != nullptr) g_cm_receive(h, payload);
    return;
  }
  if (h.kind == PacketKind::roce) {
    Arrival arrival;
    if (udp_passed_on(h, payload, arrival)) dispatch(p, arrival.header, arrival.payload);
    return;
  }
  const auto it = p.qps.find(h.dst_qpn);
  if (it == p.qps.end()) {
    SOFTHCA_LOG(trace, "packet for QP %#x, which does not exist", h.dst_qpn);
    return;
  }
  Qp &qp = *it->second;
  count_arrival(qp, h);
  bounded_by_memory(qp, [&] {
    switch (h.kind) {
      case PacketKind::request:
      case PacketKind::datagram: qp_receive_request(qp, h, payload); break;
      case PacketKind::ack:
      case PacketKind::read_response:
      case PacketKind::atomic_response: qp_receive_response(qp, h, payload); break;
      case PacketKind::dc_disconnect: qp_dc_disconnect(qp, h); break;
      default: break;
    }
    return true;
  });
}

// Frames are waiting for receive WQEs, or requests for a way back. Device lock held.
bool g_holding;

u32 receive_packets(Process &p, u64 now_ns) {
  Arrival arrival;
  u32 n = 0;
  for (; n < receive_budget && udp_receive(now_ns, arrival); ++n)
    dispatch(p, arrival.header, arrival.payload);
  return n + udp_busy();
}

bool receive_all(Process &p, u64 now_ns) {
  const PacketHeader *h;
  const u8 *payload;
  u32 n = 0;
  g_holding = false;
  for (; n < receive_budget && p.fabric->receive(h, payload); ++n) {
    if (h->kind == PacketKind::ethernet) {
      if (!receive_frame(*h, payload, now_ns)) {
        p.fabric->hold();
        g_holding = true;
        break;
      }
    } else {
      dispatch(p, *h, payload);
    }
    p.fabric->release();
  }
  g_holding |= p.fabric->waits_for_way_back();
  if (udp_open) [[unlikely]]
    n += receive_packets(p, now_ns);
  return n != 0;
}

bool push_responses(Process &p) {
  bool any = false;
  for (size_t i = 0; i < p.ack_pending.size();) {
    Qp *qp = p.ack_pending[i];
    if (!qp_run_responder(*qp)) {
      ++i;  // the ring is full: next time
      continue;
    }
    qp->ack_listed = false;
    p.ack_pending[i] = p.ack_pending.back();
    p.ack_pending.pop_back();
    any = true;
  }
  return any;
}

// The next step looks at every doorbell record. Device lock held.
bool g_sweep_all;

size_t sweep_quota(Process &p, u64 now_ns) {
  const size_t n = p.sweep.size();
  if (n <= sweep_all_below || g_sweep_all) {
    g_sweep_all = false;
    return n;
  }
  const u64 due = now_ns > p.swept_ns ? (now_ns - p.swept_ns) / sweep_visit_ns : 0;
  if (due > sweep_burst || now_ns < p.swept_ns) p.swept_ns = now_ns;
  else p.swept_ns += due * sweep_visit_ns;
  const size_t eager = std::min(p.sweep_eager, sweep_eager_per_step);
  p.sweep_eager -= eager;
  return std::min({n, sweep_burst, std::max<size_t>(due, eager)});
}

void sweep(Process &p, u64 now_ns) {
  const size_t quota = sweep_quota(p, now_ns);
  p.qp_visits += quota;
  const size_t n = p.sweep.size();
  for (size_t i = 0; i < quota; ++i) {
    if (p.sweep_cursor >= n) p.sweep_cursor = 0;
    // Each record is in another cache line: fetch the next one.
    const size_t ahead = p.sweep_cursor + sweep_prefetch;
    if (ahead < n) __builtin_prefetch(p.sweep[ahead].record);
    const IdleDoorbell &d = p.sweep[p.sweep_cursor++];
    if (!doorbell_rung(d)) continue;
    p.sweep_eager = n;
    qp_wake(*d.qp);
  }
}

bool run_hot(Process &p, u64 now_ns) {
  bool any = false;
  p.qp_visits += p.hot.size();
  for (size_t i = 0; i < p.hot.size();) {
    Qp &qp = *p.hot[i];
    bool moved = bounded_by_memory(qp, [&] { return qp_run_send(qp, now_ns); });
    moved |= qp_flush_receive(qp);
    if (moved) qp.last_activity_ns = now_ns;
    any |= moved;
    if (!moved && !qp_send_busy(qp) && now_ns > qp.last_activity_ns + cooling_ns) {
      qp_rest(qp);
      p.hot[i] = p.hot.back();
      p.hot.pop_back();
      continue;
    }
    ++i;
  }
  return any;
}

void check_watched(Process &p, u64 now_ns) {
  for (size_t i = 0; i < p.watched.size();) {
    Cq &cq = *p.watched[i];
    if (cq_check_arm(cq, now_ns)) {
      ++i;
      continue;
    }
    cq.watched = false;
    p.watched[i] = p.watched.back();
    p.watched.pop_back();
  }
}

void flush_channels(Process &p) {
  for (size_t i = 0; i < p.overflowing.size();) {
    p.overflowing[i]->flush();
    if (p.overflowing[i]->has_overflow()) {
      ++i;
      continue;
    }
    p.overflowing[i] = p.overflowing.back();
    p.overflowing.pop_back();
  }
}

}  // namespace

bool engine_step(u64 now_ns) {
  Process &p = process();
  if (!p.started) return false;
  bool any = receive_all(p, now_ns);
  // Acknowledges leave before anything that the application sends in answer
  // to what they acknowledge: a ping-pong program counts on its send being
  // complete when the pong is there.
  if (!p.ack_pending.empty()) any |= push_responses(p);
  doorbells_look(now_ns);
  sweep(p, now_ns);
  if (!p.hot.empty()) any |= run_hot(p, now_ns);
  if (!p.failed_wqs.empty()) any |= flush_failed_wqs();
  while (!p.compressing.empty()) cq_flush_compressed(*p.compressing.back());
  if (!p.watched.empty()) check_watched(p, now_ns);
  if (!p.overflowing.empty()) flush_channels(p);
  if (g_cm_tick != nullptr) any |= g_cm_tick(now_ns);
  if (g_faults) {
    any |= transmit_delayed(now_ns);
    raise_injected_events(now_ns);
  }
  // Read again: no completion of this step may be newer than the clock page.
  clock_tick(any ? device_clock_ns() : now_ns);
  return any;
}

void engine_settle(Qp *qp) {
  // A sender that was let in just now needs time to notice, and a processor;
  // more traffic may come all the while.
  constexpr u64 first_max_wait_ns = 1'000'000'000, traffic_ns = 20'000'000;
  constexpr int quiet_enough = 4;  // doorbell registers are looked at in turn
  Process &p = process();
  if (!p.started) return;
  // Among many, it might not be looked at for a while.
  if (qp != nullptr) qp_wake(*qp);
  const u64 begin = device_clock_ns();
  for (int quiet = 0; quiet < quiet_enough;) {
    const u64 now = device_clock_ns();
    const bool moved = engine_step(now);
    if (moved && now < begin + traffic_ns) {
      quiet = 0;
    } else if (moved || !p.fabric->expects_first()) {
      ++quiet;
    } else if (now < begin + first_max_wait_ns) {
      const timespec nap{0, 20'000};
      nanosleep(&nap, nullptr);
    } else {
      p.fabric->expect_no_first();
    }
  }
}

namespace {

thread_local bool t_inside_device;

u64 event_mode(u64 now_ns) {
  const u64 last = process().last_event_ns.load(std::memory_order_relaxed);
  return last != 0 && now_ns < last + event_mode_ns;
}

void nap(long ns) {
  const timespec t{0, ns};
  nanosleep(&t, nullptr);
}

// A doorbell page or the clock is about to be touched. Device lock held, and no
// descriptor of the process at hand: the device itself runs elsewhere.
void trap_sprung() {
  Process &p = process();
  if (!p.started) return;
  clock_tick(device_clock_ns());
  g_resting.store(false, std::memory_order_relaxed);
  g_sprung.store(true, std::memory_order_relaxed);
  p.fabric->wake();
}

// When the engine has to run again if nothing wakes it; 0: soon.
u64 rest_until(const Process &p, u64 now_ns) {
  if (g_holding || faults_configured()) return 0;
  u64 next = next_due(p, now_ns);
  if (g_cm_due != nullptr) next = std::min(next, g_cm_due(now_ns));
  return next >= now_ns + shortest_rest_ns ? next : 0;
}

// How long the thread may sleep now; 0: not at all. First the traps, then the
// last look. Device lock held.
u64 begin_rest(Process &p, u64 now_ns) {
  if (rest_until(p, now_ns) == 0 || !traps_arm()) return 0;
  g_sweep_all = true;
  if (engine_step(now_ns)) return 0;
  const u64 until = rest_until(p, now_ns);
  if (until == 0) return 0;
  g_resting.store(true, std::memory_order_relaxed);
  return until == ~u64{0} ? until : until - now_ns;
}

// A thread that takes more than its share of a processor beside a program that
// spins waits for that program's whole time slices: it has to sleep for as long
// as going to sleep and waking up take, which on virtual machines is 20 us.
u64 shortest_nap_ns() {
  u64 cost = ~u64{0};
  for (int i = 0; i < 4; ++i) {
    timespec before, after;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    nap(1000);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    cost = std::min(cost, static_cast<u64>((after.tv_sec - before.tv_sec) * 1'000'000'000 +
                                           after.tv_nsec - before.tv_nsec));
  }
  return std::clamp<u64>(cost, 10'000, 50'000);
}

void *engine_thread(void *argument) {
  const u32 generation = static_cast<u32>(reinterpret_cast<uintptr_t>(argument));
  pthread_setname_np(pthread_self(), "softhca");
  prctl(PR_SET_TIMERSLACK, 1);
  InsideDevice inside;
  Process &p = process();
  const u64 short_nap = shortest_nap_ns();
  ThreadPriority thread_priority(config().raise_priority);
  u64 last_work = device_clock_ns();
  while (g_generation.load(std::memory_order_relaxed) == generation) {
    u64 now = device_clock_ns();
    const u64 hook = g_last_hook_ns.load(std::memory_order_relaxed);
    if (now < hook + application_drives_ns && !event_mode(now)) {
      // Not through the fabric: senders would wake us for nothing.
      nap(200'000);
      last_work = now;
      thread_priority.rested(device_clock_ns());
      continue;
    }
    bool any, holding;
    u64 rest = 0;
    {
      std::lock_guard lock(p.mutex);
      any = engine_step(now);
      holding = g_holding;
      if (!any && now >= last_work + rest_after(p)) rest = begin_rest(p, now);
    }
    now = device_clock_ns();
    if (any) {
      last_work = now;
      thread_priority.worked(now);
      continue;
    }
    if (rest != 0) {
      p.fabric->wait(rest);
      g_resting.store(false, std::memory_order_relaxed);
      now = device_clock_ns();
      thread_priority.rested(now);
      // A thread that sprang a trap has yet to come as far as writing: a trap that is armed
      // anew at once would catch it again.
      if (g_sprung.exchange(false, std::memory_order_relaxed) || rest == ~u64{0}) last_work = now;
      continue;
    }
    traps_find(now);
    // Doorbells are found by looking; records of other processes wake us.
    const u64 idle = now - last_work;
    const u64 shortest = idle > 1'000'000'000 ? 200'000 : idle > 20'000'000 ? 50'000 : short_nap;
    const u64 ns = thread_priority.nap_ns(shortest, now);
    // A record that was left in its ring would end the wait at once.
    if (holding) nap(20'000);
    else p.fabric->wait(ns);
    thread_priority.woke(ns, device_clock_ns());
  }
  return nullptr;
}

// Behind a step of a program's thread. With two busy processes on two processors a round
// trip would otherwise take whole time slices.
void give_way(bool moved, u64 now_ns) {
  static thread_local struct {
    u32 looks;
    u64 since_ns;
  } idle;
  if (moved) {
    idle.looks = 0;
    return;
  }
  if (idle.looks++ == 0) idle.since_ns = now_ns;
  if (idle.looks < looks_before_giving_way || now_ns < idle.since_ns + max_wait_ns) return;
  idle.looks = 0;
  sched_yield();
}

}  // namespace

int engine_start() {
  const u32 generation = g_generation.fetch_add(1) + 1;
  g_faults = faults_configured();
  const int error = start_thread(engine_thread, reinterpret_cast<void *>(uintptr_t{generation}));
  g_inline_step.store(config().inline_step, std::memory_order_relaxed);
  if (error == 0) traps_start(trap_sprung);
  if (error == 0) g_running.store(true, std::memory_order_release);
  return error;
}

void engine_forget() {
  g_running.store(false, std::memory_order_relaxed);
  g_generation.fetch_add(1);
  g_last_hook_ns.store(0, std::memory_order_relaxed);
  g_resting.store(false, std::memory_order_relaxed);
  traps_forget();
  Process &p = process();
  p.started = false;
  counters_forget();
  udp_forget(true);
  if (p.fabric != nullptr) p.fabric->leave(true);
  p.fabric = nullptr;
  // The parent's QPs and their in-flight work stay the parent's. The objects
  // themselves remain: the child may still destroy them.
  p.qps.clear();
  p.srqs.clear();
  p.cqs.clear();
  p.sweep.clear();
  doorbells_forget();
  for (Qp *qp : p.hot) qp->hot = false;
  p.hot.clear();
  for (Qp *qp : p.ack_pending) qp->ack_listed = false;
  p.ack_pending.clear();
  for (Cq *cq : p.watched) cq->watched = false;
  p.watched.clear();
  p.compressing.clear();
  p.overflowing.clear();
  p.next_qpn = 0;
  p.qpn_slots.clear();
  p.free_qpns.clear();
  p.free_qpn_blocks.clear();
  flow_forget();
}

void engine_nudge() {
  if (g_resting.load(std::memory_order_relaxed) && process().started) {
    g_resting.store(false, std::memory_order_relaxed);
    process().fabric->wake();
  }
}

void engine_set_cm(void (*receive)(const PacketHeader &, const u8 *), bool (*tick)(u64),
                   u64 (*due)(u64)) {
  g_cm_receive = receive;
  g_cm_tick = tick;
  g_cm_due = due;
}

void engine_hook(const void *caller) {
  if (!g_running.load(std::memory_order_relaxed) || t_inside_device ||
      !g_inline_step.load(std::memory_order_relaxed) || !callers_have(caller))
    return;
  Process &p = process();
  if (!p.mutex.try_lock()) return;
  const u64 now = device_clock_ns();
  bool any;
  {
    InsideDevice inside;
    any = engine_step(now);
    g_last_hook_ns.store(now, std::memory_order_relaxed);
    if (any) engine_nudge();
  }
  p.mutex.unlock();
  give_way(any, now);
}

bool inside_device() { return t_inside_device; }
// Commands of a kernel are no cancellation points, and unwinding cannot pass a C++ runtime of our own.
InsideDevice::InsideDevice() : outer(t_inside_device), cancel(PTHREAD_CANCEL_ENABLE) {
  t_inside_device = true;
  if (!outer) pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
}
InsideDevice::~InsideDevice() {
  t_inside_device = outer;
  if (!outer) pthread_setcancelstate(cancel, nullptr);
}

}  // namespace softhca
