// Maps descriptors of the process to objects of one part of the device. Interposed
// functions look up every descriptor of the process, so reading takes no lock.
// Two levels cover all descriptor numbers; second-level tables are
// never freed.
#pragma once

#include <sys/mman.h>

#include <atomic>

#include "base/memory_calls.h"
#include "base/types.h"

namespace softhca {

class DescriptorTable {
 public:
  uintptr_t get(int fd) const {
    if (fd < 0) return 0;
    const Chunk *chunk = chunks_[index(fd)].load(std::memory_order_acquire);
    return chunk != nullptr ? chunk->entries[offset(fd)].load(std::memory_order_acquire) : 0;
  }
  // Device lock held.
  bool set(int fd, uintptr_t value) {
    std::atomic<Chunk *> &slot = chunks_[index(fd)];
    Chunk *chunk = slot.load(std::memory_order_relaxed);
    if (chunk == nullptr) {
      if (value == 0) return true;
      void *memory = calls::mmap(nullptr, sizeof(Chunk), PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (memory == MAP_FAILED) return false;
      chunk = static_cast<Chunk *>(memory);  // zero pages are null pointers
      slot.store(chunk, std::memory_order_release);
    }
    chunk->entries[offset(fd)].store(value, std::memory_order_release);
    return true;
  }

 private:
  static constexpr u32 chunk_bits = 15;
  static constexpr u32 chunk_count = 1u << 16;
  struct Chunk {
    std::atomic<uintptr_t> entries[1u << chunk_bits];
  };
  static size_t index(int fd) { return static_cast<u32>(fd) >> chunk_bits; }
  static size_t offset(int fd) { return static_cast<u32>(fd) & ((1u << chunk_bits) - 1); }
  std::atomic<Chunk *> chunks_[chunk_count] = {};
};

}  // namespace softhca
