// A shared receive queue: entries in a list, each with the number of the next. A
// program that drives the queue itself links them in the same way.
#pragma once

#include <infiniband/verbs_exp.h>

#include "base/owned.h"
#include "translate/queue/engine/lock.h"
#include "translate/queue/engine/segments.h"

namespace ibvexp::engine {

// As they lie in the legacy layout. The entries from head to tail are free.
struct SharedCounters {
  std::int32_t head = 0;
  std::int32_t tail = 0;
};

struct SharedQueue {
  // 0, or a positive errno value with bad set.
  using Post = int (*)(SharedQueue &, ibv_recv_wr *, ibv_recv_wr **bad);

  Lock lock;
  std::uint8_t *buffer = nullptr;
  std::uint32_t entry_bytes = 0;
  std::uint32_t max_pieces = 0;
  bool shuffles = can_shuffle();
  SharedCounters *counters = &own_counters;
  std::uint16_t *counter = &own_counter;  // entries posted
  std::uint32_t *record = nullptr;
  Post post = nullptr;  // for entries of this size (post_shared.h)
  Zeros<std::uint64_t> ids;
  Zeros<std::uint32_t> strides_used;  // of a queue of strides, by entry
  bool posted = false;                // by us, however often the counter has wrapped
  SharedCounters own_counters;
  std::uint16_t own_counter = 0;

  // A program that posts by itself counts in the same word, or in one of its own.
  bool is_used() const { return relaxed(posted) || relaxed(*counter) != 0; }

  std::uint8_t *entry(std::uint32_t index) const {
    return buffer + std::size_t{index} * entry_bytes;
  }
  std::uint8_t *scatter(std::uint32_t index) const { return entry(index) + segment_bytes; }
  std::uint32_t places() const { return entry_bytes / segment_bytes - 1; }

  // The number of the next entry: bytes 2 and 3 of the first segment.
  static std::uint16_t next_of(const std::uint8_t *entry) {
    return load_be<std::uint16_t>(entry + 2);
  }

  // The entry of a completion goes back to the end of the list. Its number as it came, in
  // network order; the queue is locked.
  [[gnu::always_inline]] void give_back(std::uint16_t number) {
    store(entry(static_cast<std::uint32_t>(counters->tail)) + 2, number);
    counters->tail = be(number);
  }
  [[gnu::always_inline]] void free_entry(std::uint32_t index) {
    const Guard guard(lock);
    give_back(be(static_cast<std::uint16_t>(index)));
  }
};

}  // namespace ibvexp::engine
