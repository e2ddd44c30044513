// What orders this processor's writes for the device, as rdma-core's
// util/udma_barrier.h and util/mmio.h have it.
#pragma once

#include <atomic>
#include <cstdint>

namespace ibvexp::engine {

// Entries are in memory before the doorbell record says so.
inline void before_record() {
#if defined(__x86_64__)
  asm volatile("" ::: "memory");
#elif defined(__aarch64__)
  asm volatile("dsb st" ::: "memory");
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

// The record is in memory before the doorbell, which lies in memory that the
// processor may write late and combined.
inline void before_doorbell() {
#if defined(__x86_64__)
  asm volatile("sfence" ::: "memory");
#elif defined(__aarch64__)
  asm volatile("dsb st" ::: "memory");
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

// The doorbell leaves this processor, before another one can ring the next.
inline void after_doorbell() { before_doorbell(); }

// The byte of a completion that the device writes last: what lies in front of it is
// read after it.
inline std::uint8_t read_owner(const std::uint8_t *at) {
  const std::uint8_t value = __atomic_load_n(at, __ATOMIC_ACQUIRE);
#if defined(__aarch64__)
  asm volatile("dsb ld" ::: "memory");
#endif
  return value;
}

}  // namespace ibvexp::engine
