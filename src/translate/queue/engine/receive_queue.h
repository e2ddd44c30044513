// A receive queue of a queue pair or a work queue: a ring of scatter lists.
#pragma once

#include <infiniband/verbs_exp.h>

#include "base/owned.h"
#include "translate/queue/engine/lock.h"
#include "translate/queue/engine/managed.h"
#include "translate/queue/engine/segments.h"

namespace ibvexp::engine {

struct Endpoint;

// As they lie in the legacy layout: what was posted, and what has completed.
struct ReceiveCounters {
  std::uint32_t head = 0;
  std::uint32_t tail = 0;
};

struct ReceiveQueue {
  Lock lock;
  std::uint8_t *buffer = nullptr;
  std::uint32_t entry_bytes = 0;
  std::uint32_t mask = ~0u;      // entries - 1; without entries nothing can be posted
  std::uint32_t max_pieces = 0;  // of a scatter list
  std::uint32_t skip = 0;        // bytes in front of the scatter list
  std::uint32_t room = 0;        // entries, or more where they are not counted
  bool shuffles = can_shuffle();
  ReceiveCounters *counters = &own_counters;
  std::uint32_t *record = nullptr;
  Zeros<std::uint64_t> ids;
  // The receive queue of a raw packet QP works from INIT on, which no queue pair
  // may: the device learns of its entries in RTR.
  const ibv_qp *held_for = nullptr;

  // For a multi-packet queue; 0 otherwise.
  std::uint32_t strides = 0;
  std::uint32_t log_stride_bytes = 0;
  std::uint32_t shift = 0;  // bytes in front of each packet
  ReceiveCounters own_counters;
  // Completed as well, as was seen when the program read completions itself and the queue
  // looked full. Counted like the tail.
  std::uint32_t done = 0;
  Managed managed;

  std::uint32_t entries() const { return mask + 1; }
  // What head may not reach.
  std::uint32_t limit() const { return room + relaxed(counters->tail); }
  // Beyond it, too, where the families have posted more than was polled.
  static bool is_full(std::uint32_t head, std::uint32_t limit) {
    return static_cast<std::int32_t>(limit - head) <= 0;
  }
  std::uint8_t *scatter(std::uint32_t index) const {
    return buffer + std::size_t{index & mask} * entry_bytes + skip;
  }
  // That fit in an entry.
  std::uint32_t places() const { return (entry_bytes - skip) / segment_bytes; }

  void ring();
  void reset() {
    *counters = {};
    done = 0;
    managed.reset();
  }
};

// 0, or a positive errno value with bad set.
int post_receive(ReceiveQueue &queue, ibv_recv_wr *wr, ibv_recv_wr **bad);

// The same for the families, without work requests: one scatter list, or a request of
// one piece for each. All of them, or none and an errno value. The program may read the
// completions itself, by whatever way.
int post_list(Endpoint &of, const ibv_sge *list, std::uint32_t count);
int post_pieces(Endpoint &of, const ibv_sge *list, std::uint32_t count);

}  // namespace ibvexp::engine
