// What ports and queue pairs count: QUERY_VPORT_COUNTER, PPCNT and QUERY_Q_COUNTER for a driver, and
// `counters` and `hw_counters` in sysfs.
//
// The processes of a host share its ports: each counts in its own part of one file of the fabric, and who
// reads adds the parts up. What processes that have ended counted stays, as in a card.
//
// Written with the device lock held.
#pragma once

#include <array>
#include <atomic>

#include "base/prm.h"
#include "base/types.h"
#include "wire/packet.h"

namespace softhca {

struct Device;
struct Qp;
struct Wq;

// Other processes may read it while its only writer adds.
class Count {
 public:
  void add(u64 n) { n_.store(value() + n, std::memory_order_relaxed); }
  u64 value() const { return n_.load(std::memory_order_relaxed); }
  void clear() { n_.store(0, std::memory_order_relaxed); }

 private:
  std::atomic<u64> n_{0};
};
static_assert(sizeof(Count) == sizeof(u64));

enum class TrafficKind : u32 {
  sent_rdma,
  sent_rdma_multicast,
  sent_frames,
  sent_multicast_frames,
  sent_broadcast_frames,
  received_rdma,
  received_rdma_multicast,
  received_frames,
  received_multicast_frames,
  received_broadcast_frames,
  number
};

enum class QueueCounter : u32 {
#define SOFTHCA_QUEUE_COUNTER(name, bit, shown) name,
#include "model/queue_counters.def"
#undef SOFTHCA_QUEUE_COUNTER
  number
};

// A counter set. T: Count, or u64 for a copy.
template <class T>
struct QueueCounters {
  std::array<T, static_cast<size_t>(QueueCounter::number)> all{};
  T &operator[](QueueCounter c) { return all[static_cast<size_t>(c)]; }
};
// A port: packets and octets of each kind, side by side, and the set of queue pairs without one of
// their own. Octets are those from the first header to the invariant CRC, of frames without their check
// sequence.
template <class T>
struct PortCounters {
  std::array<T, 2 * static_cast<size_t>(TrafficKind::number)> traffic{};
  QueueCounters<T> queues;
  T &packets(TrafficKind k) { return traffic[2 * static_cast<size_t>(k)]; }
  T &octets(TrafficKind k) { return traffic[2 * static_cast<size_t>(k) + 1]; }
};

// A set that a driver has allocated, and the queue pairs and receive queues that count in it.
struct CounterSet {
  u8 number = 0;
  QueueCounters<Count> counters;
};

// Counts in the part of this process's slot from now on. Where the file cannot be had, nothing is shown.
void counters_share(u16 slot);
// A forked child has no part until it joins the fabric.
void counters_forget();

// The set that a queue pair or a receive queue of frames counts in: its own, or its port's.
QueueCounters<Count> &queue_counters(const Qp &);
QueueCounters<Count> &queue_counters(const Wq &);
template <class Queue>
void count(const Queue &queue, QueueCounter which) {
  queue_counters(queue)[which].add(1);
}
// A completion with an error.
void count_error(QueueCounters<Count> &, Syndrome, bool responder);
// A record that left by its header's port, or came for a queue pair of a port. A frame needs its first
// six bytes.
void count_sent(const Device &, const PacketHeader &, const u8 *frame = nullptr);
void count_received(const Device &, u32 port, const PacketHeader &, const u8 *frame = nullptr);

// What all processes of the host have counted, from the file: needs no lock.
PortCounters<u64> port_counters(u32 device, u32 port);

}  // namespace softhca
