#include "engine/engine.h"

#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <ctime>

#include "base/log.h"
#include "engine/clock.h"
#include "fault/faults.h"
#include "model/device.h"
#include "model/eth_flow.h"
#include "model/eth_queue.h"
#include "model/transmit.h"

namespace softhca {

namespace {

// A QP stays on the list of active ones this long after its last doorbell.
constexpr u64 cooling_ns = 5'000'000;
// QPs whose doorbells one step looks at beyond the active ones. Few QPs are
// all looked at; many only in turn, so that idle ones cost nothing noticeable.
constexpr size_t sweep_all_below = 64;
constexpr size_t sweep_per_step = 16;
constexpr u32 receive_budget = 256;   // records handled per step
// The engine thread keeps out of the way while application threads step.
constexpr u64 application_drives_ns = 300'000;
constexpr u64 event_mode_ns = 2'000'000;

std::atomic<u64> g_last_hook_ns{0};
std::atomic<bool> g_running{false};
std::atomic<bool> g_inline_step{true};   // `inline_step` of the configuration
std::atomic<u32> g_generation{0};   // a forked child's engine is another one
void (*g_cm_receive)(const PacketHeader &, const u8 *);
bool (*g_cm_tick)(u64);

bool doorbell_rung(const Qp &qp) {
  if (qp.sq_wqebbs != 0 && qp.state >= QpState::rts &&
      static_cast<u16>(read_doorbell(&qp.dbrec[1])) != qp.sq_consumed)
    return true;
  return qp.state == QpState::err && qp.rq_wqes != 0 &&
         static_cast<u16>(read_doorbell(&qp.dbrec[0])) != qp.rq_consumed;
}

void dispatch_multicast(Process &p, const PacketHeader &h, const u8 *payload) {
  const std::string group(reinterpret_cast<const char *>(h.dgid), 16);
  for (const auto &[qpn, qp] : p.qps) {
    if (qp->multicast.count(group) == 0) continue;
    if (qp->block_multicast_loopback && h.src_slot == p.fabric->slot()) continue;
    qp_receive_multicast(*qp, h, payload);
  }
}

void dispatch(Process &p, const PacketHeader &h, const u8 *payload) {
  if (h.kind == PacketKind::datagram && h.dst_qpn == 0xffffff)
    return dispatch_multicast(p, h, payload);
  if (h.kind == PacketKind::cm) {
    if (g_cm_receive != nullptr) g_cm_receive(h, payload);
    return;
  }
  const auto it = p.qps.find(h.dst_qpn);
  if (it == p.qps.end()) {
    SOFTHCA_LOG(trace, "record for QP %#x, which does not exist", h.dst_qpn);
    return;
  }
  Qp &qp = *it->second;
  switch (h.kind) {
    case PacketKind::request:
    case PacketKind::datagram: return qp_receive_request(qp, h, payload);
    case PacketKind::ack:
    case PacketKind::read_response:
    case PacketKind::atomic_response: return qp_receive_response(qp, h, payload);
    case PacketKind::dc_disconnect: return qp_dc_disconnect(qp, h);
    default: break;
  }
}

// Frames are waiting for receive WQEs. Device lock held.
bool g_holding;

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
  return n != 0;
}

bool push_responses(Process &p) {
  bool any = false;
  for (size_t i = 0; i < p.ack_pending.size();) {
    Qp *qp = p.ack_pending[i];
    if (!qp_run_responder(*qp)) {
      ++i;   // the ring is full: next time
      continue;
    }
    qp->ack_listed = false;
    p.ack_pending[i] = p.ack_pending.back();
    p.ack_pending.pop_back();
    any = true;
  }
  return any;
}

void sweep(Process &p) {
  const size_t n = p.sweep.size();
  const size_t quota = n <= sweep_all_below ? n : sweep_per_step;
  for (size_t i = 0; i < quota; ++i) {
    if (p.sweep_cursor >= n) p.sweep_cursor = 0;
    Qp &qp = *p.sweep[p.sweep_cursor++];
    if (!qp.hot && doorbell_rung(qp)) qp_wake(qp);
  }
}

bool run_hot(Process &p, u64 now_ns) {
  bool any = false;
  for (size_t i = 0; i < p.hot.size();) {
    Qp &qp = *p.hot[i];
    bool moved = qp_run_send(qp, now_ns);
    moved |= qp_flush_receive(qp);
    if (moved) qp.last_activity_ns = now_ns;
    any |= moved;
    if (!moved && !qp_send_busy(qp) && now_ns > qp.last_activity_ns + cooling_ns) {
      qp.hot = false;
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
  sweep(p);
  any |= run_hot(p, now_ns);
  any |= flush_failed_wqs();
  while (!p.compressing.empty()) cq_flush_compressed(*p.compressing.back());
  if (!p.watched.empty()) check_watched(p, now_ns);
  if (!p.overflowing.empty()) flush_channels(p);
  if (g_cm_tick != nullptr) any |= g_cm_tick(now_ns);
  if (faults_configured()) {
    any |= transmit_delayed(now_ns);
    raise_injected_events(now_ns);
  }
  // Read again: no completion of this step may be newer than the clock page.
  clock_tick(device_clock_ns());
  return any;
}

namespace {

thread_local bool t_inside_device;
std::atomic<uintptr_t> g_provider_begin{0}, g_provider_end{0};

u64 event_mode(u64 now_ns) {
  const u64 last = process().last_event_ns.load(std::memory_order_relaxed);
  return last != 0 && now_ns < last + event_mode_ns;
}

void nap(long ns) {
  const timespec t{0, ns};
  nanosleep(&t, nullptr);
}

void *engine_thread(void *argument) {
  const u32 generation = static_cast<u32>(reinterpret_cast<uintptr_t>(argument));
  pthread_setname_np(pthread_self(), "softhca");
  prctl(PR_SET_TIMERSLACK, 1);
  InsideDevice inside;
  Process &p = process();
  u64 last_work = device_clock_ns();
  while (g_generation.load(std::memory_order_relaxed) == generation) {
    u64 now = device_clock_ns();
    const u64 hook = g_last_hook_ns.load(std::memory_order_relaxed);
    if (now < hook + application_drives_ns && !event_mode(now)) {
      // Not through the fabric: senders would wake us for nothing.
      nap(200'000);
      last_work = now;
      continue;
    }
    bool any, holding;
    {
      std::lock_guard lock(p.mutex);
      any = engine_step(now);
      holding = g_holding;
    }
    now = device_clock_ns();
    if (any) {
      last_work = now;
      continue;
    }
    const u64 idle = now - last_work;
    // Doorbells are found by looking; records of other processes wake us.
    const u64 ns = idle > 1'000'000'000 ? 200'000 : idle > 20'000'000 ? 50'000 : 10'000;
    // A record that was left in its ring would end the wait at once.
    if (holding) nap(20'000);
    else p.fabric->wait(ns);
  }
  return nullptr;
}

}  // namespace

int engine_start() {
  const u32 generation = g_generation.fetch_add(1) + 1;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  // Signals of the application are not ours to take.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  pthread_t thread;
  const int error = pthread_create(&thread, &attributes, engine_thread,
                                   reinterpret_cast<void *>(uintptr_t{generation}));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  g_inline_step.store(config().inline_step, std::memory_order_relaxed);
  if (error == 0) g_running.store(true, std::memory_order_release);
  return error;
}

void engine_forget() {
  g_running.store(false, std::memory_order_relaxed);
  g_generation.fetch_add(1);
  g_last_hook_ns.store(0, std::memory_order_relaxed);
  Process &p = process();
  p.started = false;
  if (p.fabric != nullptr) p.fabric->leave(true);
  p.fabric = nullptr;
  // The parent's QPs and their in-flight work stay the parent's. The objects
  // themselves remain: the child may still destroy them.
  p.qps.clear();
  p.srqs.clear();
  p.sweep.clear();
  for (Qp *qp : p.hot) qp->hot = false;
  p.hot.clear();
  for (Qp *qp : p.ack_pending) qp->ack_listed = false;
  p.ack_pending.clear();
  for (Cq *cq : p.watched) cq->watched = false;
  p.watched.clear();
  p.compressing.clear();
  p.overflowing.clear();
  p.next_qpn = 0;
  p.free_qpns.clear();
  flow_forget();
}

void engine_set_cm(void (*receive)(const PacketHeader &, const u8 *), bool (*tick)(u64)) {
  g_cm_receive = receive;
  g_cm_tick = tick;
}

void engine_find_provider() {
  dl_iterate_phdr(
      [](dl_phdr_info *info, size_t, void *) {
        if (info->dlpi_name == nullptr || std::strstr(info->dlpi_name, "libmlx5") == nullptr)
          return 0;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const ElfW(Phdr) &h = info->dlpi_phdr[i];
          if (h.p_type != PT_LOAD || (h.p_flags & PF_X) == 0) continue;
          g_provider_end.store(info->dlpi_addr + h.p_vaddr + h.p_memsz);
          g_provider_begin.store(info->dlpi_addr + h.p_vaddr);
        }
        return 0;
      },
      nullptr);
}

void engine_hook(const void *return_address) {
  if (!g_running.load(std::memory_order_relaxed) || t_inside_device ||
      !g_inline_step.load(std::memory_order_relaxed))
    return;
  const auto caller = reinterpret_cast<uintptr_t>(return_address);
  // Only libmlx5's locks: any other may be taken inside malloc or a signal
  // handler of the application.
  if (caller < g_provider_begin.load(std::memory_order_relaxed) ||
      caller >= g_provider_end.load(std::memory_order_relaxed))
    return;
  Process &p = process();
  if (!p.mutex.try_lock()) return;
  bool any;
  {
    InsideDevice inside;
    const u64 now = device_clock_ns();
    any = engine_step(now);
    g_last_hook_ns.store(now, std::memory_order_relaxed);
  }
  p.mutex.unlock();
  // A thread that polls and finds nothing gives its core to whoever has to
  // answer: with two busy processes on two cores a round trip would otherwise
  // take whole time slices.
  static thread_local u32 idle;
  if (any) {
    idle = 0;
  } else if (++idle > 100) {
    idle = 0;
    sched_yield();
  }
}

bool inside_device() { return t_inside_device; }
InsideDevice::InsideDevice() : outer(t_inside_device) { t_inside_device = true; }
InsideDevice::~InsideDevice() { t_inside_device = outer; }

}  // namespace softhca
