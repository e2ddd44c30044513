#include "engine/rest.h"

#include <algorithm>

#include "model/eth_queue.h"

namespace softhca {

namespace {

// The engine checks all doorbell records before it sleeps: with many QPs, not after each post.
constexpr size_t few_qps = 64;
constexpr u64 rest_after_ns = 300'000;
constexpr u64 rest_after_many_ns = 20'000'000;
// Receive WQEs of a QP or WQ in error are flushed; they come without a doorbell.
constexpr u64 flush_ns = 1'000'000;
// Programs that do not read their events fill the channel.
constexpr u64 channel_ns = 1'000'000;

}  // namespace

u64 rest_after(const Process &p) {
  return p.sweep.size() <= few_qps ? rest_after_ns : rest_after_many_ns;
}

u64 next_due(const Process &p, u64 now_ns) {
  if (!p.ack_pending.empty() || !p.compressing.empty()) return now_ns;
  u64 next = ~u64{0};
  if (!p.failed_wqs.empty()) next = now_ns + flush_ns;
  if (!p.overflowing.empty()) next = std::min(next, now_ns + channel_ns);
  for (const IdleDoorbell &d : p.sweep)
    if (d.watch_received) next = std::min(next, now_ns + flush_ns);
  for (const Qp *qp : p.hot) next = std::min(next, qp_next_due(*qp, now_ns));
  for (const Cq *cq : p.watched)
    if (cq->moderation_start != 0) return now_ns;
  return next;
}

}  // namespace softhca
