// The locks of the library. fork() is provided for here and nowhere else:
//
// - No thread holds a Mutex while another forks, so a child gets all of them free, and
//   what they protect whole. fork() waits for that, and those who come meanwhile wait
//   for fork().
// - A SpinLock that another thread holds is free in the child. What it protects, a
//   queue, is the parent's: after fork() only one process may post to it or poll it
//   (man ibv_fork_init), and the child shall be able to close it.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <mutex>

namespace ibvexp {

// A thread that holds a mutex has it shared, a thread that forks exclusively.
[[gnu::visibility("hidden")]] extern pthread_rwlock_t fork_gate;
// Mutexes that this thread holds: only the first may wait at the gate.
[[gnu::visibility("hidden"),
  gnu::tls_model("initial-exec")]] extern thread_local constinit unsigned held_mutexes;

// Nothing under it waits for another thread of the program. Mutexes may nest.
class Mutex {
 public:
  constexpr Mutex() = default;
  Mutex(const Mutex &) = delete;
  Mutex &operator=(const Mutex &) = delete;

  void lock() {
    if (held_mutexes++ == 0) [[likely]]
      pthread_rwlock_rdlock(&fork_gate);
    pthread_mutex_lock(&mutex_);
  }
  void unlock() {
    pthread_mutex_unlock(&mutex_);
    if (--held_mutexes == 0) [[likely]]
      pthread_rwlock_unlock(&fork_gate);
  }

 private:
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
};

using MutexGuard = std::lock_guard<Mutex>;

// How many fork() lie between this process and the one that loaded the library, and
// one. Never 0.
[[gnu::visibility("hidden")]] extern std::atomic<std::uint32_t> fork_generation;

// For what takes a few instructions: nothing under it blocks or calls out.
class SpinLock {
 public:
  constexpr SpinLock() = default;
  SpinLock(const SpinLock &) = delete;
  SpinLock &operator=(const SpinLock &) = delete;

  void lock() {
    std::uint32_t holder = 0;
    const std::uint32_t ours = fork_generation.load(std::memory_order_relaxed);
    while (!holder_.compare_exchange_weak(holder, ours, std::memory_order_acquire,
                                          std::memory_order_relaxed))
      [[unlikely]] {
        // Any other value was left by a thread that exists in an ancestor only.
        if (holder == ours) holder = wait(ours);
      }
  }

  // False: another thread has it.
  bool try_lock() {
    std::uint32_t holder = holder_.load(std::memory_order_relaxed);
    const std::uint32_t ours = fork_generation.load(std::memory_order_relaxed);
    return holder != ours &&
           holder_.compare_exchange_strong(holder, ours, std::memory_order_acquire,
                                           std::memory_order_relaxed);
  }

  // The same in fewer instructions. Also false: a thread of an ancestor left it.
  bool try_lock_free() {
    std::uint32_t free = 0;
    return holder_.compare_exchange_strong(free, fork_generation.load(std::memory_order_relaxed),
                                           std::memory_order_acquire, std::memory_order_relaxed);
  }

  void unlock() { holder_.store(0, std::memory_order_release); }

 private:
  [[gnu::cold, gnu::noinline]] std::uint32_t wait(std::uint32_t ours) const {
    std::uint32_t holder;
    while ((holder = holder_.load(std::memory_order_relaxed)) == ours) {
#if defined(__x86_64__)
      asm volatile("pause" ::: "memory");
#elif defined(__aarch64__)
      asm volatile("yield" ::: "memory");
#endif
    }
    return holder;
  }

  std::atomic<std::uint32_t> holder_{0};  // the generation of who holds it
};

}  // namespace ibvexp
