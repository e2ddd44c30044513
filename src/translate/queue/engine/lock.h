// The lock of a queue. Nothing under it blocks or calls out.
#pragma once

#include <pthread.h>

#include "base/lock.h"

namespace ibvexp::engine {

class Lock {
 public:
  // One thread alone uses the queue: the program has said so.
  void set_single_threaded() { needed_ = false; }

  void lock() {
    if (needed_) taken_.lock();
  }
  // False: another thread has it, or may have it; lock() finds out.
  bool try_lock() { return !needed_ || taken_.try_lock_free(); }
  // Harmless for a lock that is not needed.
  void unlock() { taken_.unlock(); }

 private:
  SpinLock taken_;
  bool needed_ = true;
};

// Compared with std::lock_guard it can be inlined without exceptions in mind.
class Guard {
 public:
  [[gnu::always_inline]] explicit Guard(Lock &lock) : lock_(lock) { lock_.lock(); }
  [[gnu::always_inline]] ~Guard() { lock_.unlock(); }
  Guard(const Guard &) = delete;
  Guard &operator=(const Guard &) = delete;

 private:
  Lock &lock_;
};

// A lock of the C library, as libmlx5 takes one for each poll: whatever stands in front of
// those functions (emulated devices, tools that look for races) is called there. Polls that
// find nothing take it once in a while.
class LibcLock {
 public:
  LibcLock() { pthread_spin_init(&lock_, PTHREAD_PROCESS_PRIVATE); }
  LibcLock(const LibcLock &) = delete;
  LibcLock &operator=(const LibcLock &) = delete;

  // Counts a poll; true: it is the turn of pass(). Two instructions.
  [[gnu::always_inline]] bool is_due() { return (polls_ += 256 / polls_per_turn) == 0; }
  // Takes and drops it, unless another thread has it.
  void pass() {
    if (pthread_spin_trylock(&lock_) == 0) pthread_spin_unlock(&lock_);
  }

  static constexpr unsigned polls_per_turn = 32;

 private:
  pthread_spinlock_t lock_;
  std::uint8_t polls_ = 0;
};

template <class T>
T relaxed(const T &value) {
  return __atomic_load_n(&value, __ATOMIC_RELAXED);
}
template <class T, class V>
void set_relaxed(T &to, V value) {
  __atomic_store_n(&to, static_cast<T>(value), __ATOMIC_RELAXED);
}

}  // namespace ibvexp::engine
