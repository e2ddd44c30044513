// The work requests of one send queue between posting and completion.
//
// libmlx5's builders may not be entered with a full send queue: they would go on
// writing, into the last entry of the previous batch. So the queue's fill is
// counted here, from what was posted and what was seen to complete, never below
// what libmlx5 counts. In any thread: several may poll one completion queue, and handle
// what they got in another order. Nothing allocates but open().
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/lock.h"

namespace ibvexp::native {

class WorkLog {
 public:
  // For a queue of that many requests. Throws bad_alloc.
  void open(std::uint32_t depth) {
    std::vector<Entry> entries(std::bit_ceil(depth == 0 ? 1 : depth));
    const std::lock_guard guard(lock_);
    entries_.swap(entries);
    depth_ = depth;
    oldest_ = head_;
  }

  // Forgets everything: the queue was reset.
  void abandon() {
    const std::lock_guard guard(lock_);
    oldest_ = head_;
  }

  bool full() {
    const std::lock_guard guard(lock_);
    return head_ - oldest_ >= depth_;
  }

  std::uint32_t position() {
    const std::lock_guard guard(lock_);
    return head_;
  }

  // Not if full().
  void push(std::uint64_t wr_id, bool signaled) {
    const std::lock_guard guard(lock_);
    at(head_++) = {wr_id, signaled ? State::signaled : State::silent};
  }

  // Takes back what was pushed since that position and not posted after all. Other
  // threads may have posted since.
  void cancel_since(std::uint32_t from, std::uint32_t count) {
    const std::lock_guard guard(lock_);
    for (; count != 0; --count, ++from)
      if (from - oldest_ < head_ - oldest_) at(from).state = State::done;
    catch_up();
  }

  // A completion of this queue, with the request's own wr_id. Frees the request
  // and all silent ones before it. False if no such request is outstanding.
  bool complete(std::uint64_t wr_id, bool success) {
    const std::lock_guard guard(lock_);
    for (std::uint32_t position = oldest_; position != head_; ++position) {
      Entry &entry = at(position);
      // A silent request completes by itself only when it fails.
      const bool waiting =
          entry.state == State::signaled || (!success && entry.state == State::silent);
      if (!waiting || entry.wr_id != wr_id) continue;
      entry.state = State::done;
      catch_up();
      return true;
    }
    return false;
  }

 private:
  enum class State : std::uint8_t { silent, signaled, done };

  struct Entry {
    std::uint64_t wr_id = 0;
    State state = State::done;
  };

  Entry &at(std::uint32_t position) { return entries_[position & (entries_.size() - 1)]; }

  // Passes over what is done, and over silent requests before it.
  void catch_up() {
    for (std::uint32_t position = oldest_; position != head_; ++position) {
      if (at(position).state == State::signaled) break;
      if (at(position).state == State::done) oldest_ = position + 1;
    }
  }

  SpinLock lock_;
  std::uint32_t depth_ = 0;
  std::uint32_t head_ = 0;    // next to be posted
  std::uint32_t oldest_ = 0;  // all before it are over
  std::vector<Entry> entries_;
};

}  // namespace ibvexp::native
