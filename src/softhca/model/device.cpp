#include "model/device.h"

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "base/limits.h"
#include "base/log.h"
#include "config/identity.h"
#include "model/capabilities.h"
#include "model/counters.h"
#include "model/cross_channel.h"
#include "model/driver.h"
#include "model/udp_wire.h"

namespace softhca {

Process &process() {
  static Process &p = *new Process;  // never destroyed, see device.h
  return p;
}

u64 device_clock_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<u64>(t.tv_sec) * 1'000'000'000 + static_cast<u64>(t.tv_nsec);
}

namespace {

void build_devices(Process &p) {
  const Config &c = config();
  p.devices.resize(c.devices.size());
  for (u32 i = 0; i < c.devices.size(); ++i) {
    Device &d = p.devices[i];
    d.config = &c.devices[i];
    d.number = i;
    d.caps = capabilities_of(c.devices[i]);
    for (u32 port = 1; port <= d.port_count(); ++port) {
      std::vector<GidEntry> table;
      for (const PortGid &g : port_gids(c, i, port))
        table.push_back({g.gid, static_cast<GidType>(g.type), true});
      d.gids.push_back(std::move(table));
      d.ports_up.push_back(d.port(port).active);
    }
  }
}

}  // namespace

int Process::start() {
  if (started) return 0;
  if (devices.empty()) build_devices(*this);
  set_memory_access(config().process_vm);
  fabric = Fabric::join(config().fabric, config().ring_bytes);
  if (fabric == nullptr) return errno != 0 ? errno : EIO;
  if (std::string what; !udp_start(what)) {
    const int error = errno;
    SOFTHCA_LOG(error, "wire udp: %s", what.c_str());
    fabric->leave(false);
    fabric = nullptr;
    return error;
  }
  if (const int error = engine_start(); error != 0) {
    udp_forget(false);
    SOFTHCA_LOG(error, "the device's thread cannot start: %s%s", strerror(error),
                limit_behind(error).text);
    fabric->leave(false);
    fabric = nullptr;
    return error;
  }
  counters_share(fabric->slot());
  open_ns = device_clock_ns();
  started = true;
  return 0;
}

namespace {

constexpr u32 qpns_per_slot = 1u << qpn_bits_per_slot;
constexpr u32 qpns_per_block = 1u << log_reserved_qpns;
constexpr u32 max_qps = 1u << log_max_qps;

// `count` consecutive numbers that were not used before; false when the slots have no more.
bool fresh_qpns(Process &p, u32 count, u32 &first) {
  if (p.qpn_slots.empty()) p.qpn_slots.push_back(p.fabric->slot());
  if (p.next_qpn + count > p.qpn_slots.size() * qpns_per_slot) return false;
  first = u32{p.qpn_slots[p.next_qpn / qpns_per_slot]} << qpn_bits_per_slot |
          p.next_qpn % qpns_per_slot;
  p.next_qpn += count;
  return true;
}

bool take_further_slot(Process &p) {
  if (p.qpn_slots.size() * qpns_per_slot >= max_qps) return false;
  const u16 slot = p.fabric->further_slot();
  if (slot == 0) return false;
  p.next_qpn = static_cast<u32>(p.qpn_slots.size()) * qpns_per_slot;
  p.qpn_slots.push_back(slot);
  return true;
}

// Numbers rest as long as possible before they are used again: a late packet
// to an old QP must not meet a new one. But slots are for other processes, too.
bool take_qpn(Process &p, u32 &qpn) {
  if (fresh_qpns(p, 1, qpn)) return true;
  if (p.free_qpns.empty() && !p.free_qpn_blocks.empty()) {
    for (u32 i = 0; i < qpns_per_block; ++i) p.free_qpns.push_back(p.free_qpn_blocks.front() + i);
    p.free_qpn_blocks.pop_front();
  }
  if (p.free_qpns.empty()) return take_further_slot(p) && fresh_qpns(p, 1, qpn);
  qpn = p.free_qpns.front();
  p.free_qpns.pop_front();
  return true;
}

}  // namespace

Qp *qp_register(std::unique_ptr<Qp> qp) {
  Process &p = process();
  u32 qpn;
  if (!take_qpn(p, qpn)) return nullptr;
  Qp *raw = qp.release();
  raw->qpn = qpn;
  p.qps[raw->qpn] = raw;
  if (raw->dbrec != nullptr) {
    raw->sweep_index = p.sweep.size();
    p.sweep.push_back({.qp = raw, .record = raw->dbrec});
  }
  return raw;
}

void qp_unregister(Qp *qp) {
  Process &p = process();
  // After a fork the tables are empty but the objects may still be destroyed.
  const auto it = p.qps.find(qp->qpn);
  if (it != p.qps.end() && it->second == qp) {
    p.qps.erase(it);
    p.free_qpns.push_back(qp->qpn);
  }
  if (qp->sweep_index < p.sweep.size() && p.sweep[qp->sweep_index].qp == qp) {
    p.sweep.back().qp->sweep_index = qp->sweep_index;
    p.sweep[qp->sweep_index] = p.sweep.back();
    p.sweep.pop_back();
  }
  if (qp->hot) std::erase(p.hot, qp);
  if (qp->ack_listed) std::erase(p.ack_pending, qp);
  delete qp;
}

bool qpns_reserve(u32 &first) {
  Process &p = process();
  if (fresh_qpns(p, qpns_per_block, first)) return true;
  if (p.free_qpn_blocks.empty())
    return take_further_slot(p) && fresh_qpns(p, qpns_per_block, first);
  first = p.free_qpn_blocks.front();
  p.free_qpn_blocks.pop_front();
  return true;
}

void qpns_release(u32 first) { process().free_qpn_blocks.push_back(first); }

u32 srq_register(Srq *srq) {
  Process &p = process();
  do {
    srq->srqn = p.next_srqn++ & 0xffffff;
  } while (srq->srqn == 0 || p.srqs.count(srq->srqn) != 0);
  p.srqs[srq->srqn] = srq;
  return srq->srqn;
}

void srq_unregister(Srq *srq) {
  const auto it = process().srqs.find(srq->srqn);
  if (it != process().srqs.end() && it->second == srq) process().srqs.erase(it);
}

void cq_watch(Cq &cq) {
  if (cq.watched) return;
  cq.watched = true;
  process().watched.push_back(&cq);
}

void cq_forget(Cq &cq) {
  Process &p = process();
  if (cq.watched) std::erase(p.watched, &cq);
  if (!cq.pending.empty()) std::erase(p.compressing, &cq);
  const auto it = p.cqs.find(cq.cqn);
  if (it != p.cqs.end() && it->second == &cq) p.cqs.erase(it);
  wake_waiting(cq);
}

void qp_wake(Qp &qp) {
  qp.last_activity_ns = device_clock_ns();
  if (qp.hot || qp.dbrec == nullptr) return;
  Process &p = process();
  if (qp.sweep_index >= p.sweep.size() || p.sweep[qp.sweep_index].qp != &qp)
    return;  // a queue pair of our parent: it was made before the fork
  IdleDoorbell &d = p.sweep[qp.sweep_index];
  d.watch_sent = d.watch_received = false;
  qp.hot = true;
  p.hot.push_back(&qp);
}

void qp_rest(Qp &qp) {
  IdleDoorbell &d = process().sweep[qp.sweep_index];
  qp.hot = false;
  d.sent = qp.sq_consumed;
  d.received = qp.rq_consumed;
  d.watch_sent = qp.sq_wqebbs != 0 && qp.state >= QpState::rts && !qp.counts_when_rung &&
                 !qp.slave_send && !qp.waits;
  d.watch_received = qp.rq_wqes != 0 && qp.state == QpState::err && !qp.slave_receive;
}

}  // namespace softhca
