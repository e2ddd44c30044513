// The lock of a queue. Nothing under it blocks or calls out.
#pragma once

#include <atomic>
#include <cstdint>

namespace ibvexp::engine {

class Lock {
 public:
  // One thread alone uses the queue: the program has said so.
  void set_single_threaded() { needed_ = false; }
  bool is_needed() const { return needed_; }

  void lock() {
    if (!needed_) return;
    while (taken_.exchange(1, std::memory_order_acquire) != 0) [[unlikely]] wait();
  }
  // False: somebody else has it.
  bool try_lock() { return !needed_ || taken_.exchange(1, std::memory_order_acquire) == 0; }
  void unlock() {
    if (needed_) taken_.store(0, std::memory_order_release);
  }

 private:
  [[gnu::cold, gnu::noinline]] void wait() const {
    while (taken_.load(std::memory_order_relaxed) != 0) {
#if defined(__x86_64__)
      asm volatile("pause" ::: "memory");
#elif defined(__aarch64__)
      asm volatile("yield" ::: "memory");
#endif
    }
  }

  std::atomic<std::uint32_t> taken_{0};
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
