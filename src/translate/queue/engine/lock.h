// The lock of a queue. Nothing under it blocks or calls out.
#pragma once

#include "base/lock.h"

namespace ibvexp::engine {

class Lock {
 public:
  // One thread alone uses the queue: the program has said so.
  void set_single_threaded() { needed_ = false; }
  bool is_needed() const { return needed_; }

  void lock() {
    if (needed_) taken_.lock();
  }
  // False: somebody else has it, or may have it, and lock() knows.
  bool try_lock() { return !needed_ || taken_.try_lock_free(); }
  // Of a lock that is not needed it is as true as before.
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

template <class T>
T relaxed(const T &value) {
  return __atomic_load_n(&value, __ATOMIC_RELAXED);
}
template <class T, class V>
void set_relaxed(T &to, V value) {
  __atomic_store_n(&to, static_cast<T>(value), __ATOMIC_RELAXED);
}

}  // namespace ibvexp::engine
