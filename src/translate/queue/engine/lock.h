// The lock of a queue. Nothing under it blocks or calls out.
#pragma once

#include <pthread.h>

#include "base/lock.h"

namespace ibvexp::engine {

class Lock {
 public:
  // The program declared that only one thread uses the queue.
  void set_single_threaded() { needed_ = false; }

  void lock() {
    if (needed_) taken_.lock();
  }
  // False: another thread may have it; call lock().
  bool try_lock() { return !needed_ || taken_.try_lock_free(); }
  // Harmless for a lock that is not needed.
  void unlock() { taken_.unlock(); }

 private:
  SpinLock taken_;
  bool needed_ = true;
};

// As std::lock_guard, but without code for exceptions, so that it can be inlined.
class Guard {
 public:
  [[gnu::always_inline]] explicit Guard(Lock &lock) : lock_(lock) { lock_.lock(); }
  [[gnu::always_inline]] ~Guard() { lock_.unlock(); }
  Guard(const Guard &) = delete;
  Guard &operator=(const Guard &) = delete;

 private:
  Lock &lock_;
};

// A lock of the C library, which libmlx5 takes in each poll. Libraries that interpose these
// functions (the software HCA, race detectors) run there. Here, every 32nd empty poll
// takes it.
class LibcLock {
 public:
  LibcLock() { pthread_spin_init(&lock_, PTHREAD_PROCESS_PRIVATE); }
  LibcLock(const LibcLock &) = delete;
  LibcLock &operator=(const LibcLock &) = delete;

  // Counts a poll; true: call pass() now. Two instructions.
  [[gnu::always_inline]] bool is_due() { return (polls_ += 256 / polls_per_turn) == 0; }
  // Takes and releases the lock, unless another thread has it.
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
