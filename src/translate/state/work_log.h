// The work requests of one send queue between posting and completion.
//
// libmlx5's builders may not be entered with a full send queue: they would go on
// writing, into the last entry of the previous batch. So the queue's fill is
// counted here, from what was posted and what was seen to complete, never below
// what libmlx5 counts.
//
// Posting calls are serialised by the lock of the send queue. complete() may run
// in any thread at any time: several may poll one completion queue, and handle
// what they got in another order. Nothing allocates but open().
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace ibvexp::native {

class WorkLog {
 public:
  // For a queue of that many requests. Throws bad_alloc. Memory of an earlier
  // queue stays: a poller may still be reading it.
  void open(std::uint32_t depth) {
    const std::uint32_t size = std::bit_ceil(depth == 0 ? 1 : depth);
    if (size > size_) {
      auto grown = std::make_unique<Entries>();
      grown->all = std::make_unique<Entry[]>(size);
      grown->mask = size - 1;
      grown->before = std::move(entries_);
      entries_ = std::move(grown);
      current_.store(entries_.get(), std::memory_order_release);
      size_ = size;
    }
    depth_ = depth;
    abandon();
  }

  // Forgets everything: the queue was reset or is new.
  void abandon() {
    const std::uint32_t head = head_.load(std::memory_order_relaxed);
    cancel(oldest_.load(std::memory_order_relaxed), head);
    oldest_.store(head, std::memory_order_release);
  }

  bool full() const {
    return head_.load(std::memory_order_relaxed) - oldest_.load(std::memory_order_acquire) >=
           depth_;
  }

  std::uint32_t position() const { return head_.load(std::memory_order_relaxed); }

  // Not if full().
  void push(std::uint64_t wr_id, bool signaled) {
    const std::uint32_t at = head_.load(std::memory_order_relaxed);
    Entries &entries = *current_.load(std::memory_order_relaxed);
    Entry &entry = entries.all[at & entries.mask];
    entry.wr_id.store(wr_id, std::memory_order_relaxed);
    entry.state.store(state(at, signaled ? signaled_one : silent_one), std::memory_order_release);
    head_.store(at + 1, std::memory_order_release);
  }

  // Takes back what was pushed since that position and not posted after all. Other
  // threads may have posted since.
  void cancel_since(std::uint32_t from, std::uint32_t count) {
    cancel(from, from + count);
    disorder_.store(true);
    catch_up();
  }

  // A completion of this queue, with the request's own wr_id. Frees the request
  // and all silent ones before it. False if no such request is outstanding.
  bool complete(std::uint64_t wr_id, bool success) {
    const Entries &entries = *current_.load(std::memory_order_acquire);
    bool in_order = true;
    // In that order: the oldest one never passes the newest.
    std::uint32_t at = oldest_.load(std::memory_order_acquire);
    std::uint32_t head = head_.load(std::memory_order_acquire);
    for (;; ++at) {
      if (at == head) {
        // Another thread may have taken this one for its own, which has the same number
        // and was posted after we looked.
        head = head_.load(std::memory_order_acquire);
        if (at == head) return false;
      }
      Entry &entry = entries.all[at & entries.mask];
      std::uint32_t now = entry.state.load(std::memory_order_acquire);
      // A silent request completes by itself only when it fails.
      const bool waiting =
          now == state(at, signaled_one) || (!success && now == state(at, silent_one));
      if (waiting && entry.wr_id.load(std::memory_order_relaxed) == wr_id) {
        if (entry.state.compare_exchange_strong(now, state(at, done))) {
          if (in_order) advance(at + 1);
          else disorder_.store(true);
          if (disorder_.load()) [[unlikely]]
            catch_up();
          return true;
        }
      }
      if (now == state(at, signaled_one)) in_order = false;
    }
  }

 private:
  // Low bits of an entry's state; above them its position, so that an entry of
  // another lap is never taken for this one.
  static constexpr std::uint32_t silent_one = 1, signaled_one = 2, done = 3;
  static constexpr std::uint32_t state(std::uint32_t at, std::uint32_t what) {
    return at << 2 | what;
  }

  struct Entry {
    std::atomic<std::uint64_t> wr_id{0};
    std::atomic<std::uint32_t> state{0};
  };
  struct Entries {
    std::unique_ptr<Entry[]> all;
    std::uint32_t mask = 0;
    std::unique_ptr<Entries> before;
  };

  void cancel(std::uint32_t from, std::uint32_t to) {
    Entries &entries = *current_.load(std::memory_order_relaxed);
    for (std::uint32_t at = from; at != to; ++at)
      entries.all[at & entries.mask].state.store(state(at, done));
  }

  // Never backwards: a slow thread may come with an old position.
  void advance(std::uint32_t to) {
    std::uint32_t now = oldest_.load(std::memory_order_relaxed);
    while (static_cast<std::int32_t>(to - now) > 0 &&
           !oldest_.compare_exchange_weak(now, to, std::memory_order_acq_rel)) {
    }
  }

  // Passes over what was handled out of order.
  void catch_up() {
    const Entries &entries = *current_.load(std::memory_order_acquire);
    std::uint32_t behind = oldest_.load(std::memory_order_acquire);
    const std::uint32_t head = head_.load(std::memory_order_acquire);
    for (std::uint32_t at = behind; at != head; ++at) {
      const std::uint32_t now = entries.all[at & entries.mask].state.load();
      if (now == state(at, signaled_one)) break;
      if (now == state(at, done)) behind = at + 1;
    }
    advance(behind);
  }

  std::uint32_t depth_ = 0, size_ = 0;
  std::atomic<std::uint32_t> head_{0};    // next to be posted
  std::atomic<std::uint32_t> oldest_{0};  // all before it are over
  std::atomic<bool> disorder_{false};
  std::atomic<Entries *> current_{nullptr};
  std::unique_ptr<Entries> entries_;
};

}  // namespace ibvexp::native
