// The range of addresses that all objects of ours come from.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/flag.h"

namespace ibvexp::queue {

// Reserved when the first object is made; before that, nothing is inside. Pages
// are taken as they are needed.
class BlockRange {
 public:
  // A few instructions: no lock, and nothing is read behind the pointer.
  bool contain(const void *pointer) const noexcept {
    return reinterpret_cast<std::uintptr_t>(pointer) - now(begin_) < now(size_);
  }

  // Whether an address that is inside may be that of a block: it can be read.
  bool taken(const void *pointer, std::size_t bytes) const noexcept {
    const std::size_t at = offset(pointer);
    return at % 64 == 0 && at + bytes <= used_.load(std::memory_order_acquire);
  }
  // Offset of an address inside of the range.
  std::size_t offset(const void *pointer) const noexcept {
    return reinterpret_cast<std::uintptr_t>(pointer) - begin_.load(std::memory_order_relaxed);
  }

  // Memory of whole pages that stays, all zero. Serialised by the caller. Null
  // if there is no more.
  std::uint8_t *take(std::size_t bytes) noexcept;

 private:
  bool reserve() noexcept;

  // A thread with a pointer into the range got it from one that had seen the range; for other
  // pointers any mixture of old and new values is as good.
  template <class T>
  [[gnu::always_inline]] static T now(const std::atomic<T> &value) noexcept {
    static_assert(sizeof(value) == sizeof(T));
    return operand(reinterpret_cast<const T &>(value));
  }

  // No pointer is near this one, whatever the size.
  static constexpr std::uintptr_t nowhere = std::uintptr_t{1} << 63;

  std::atomic<std::uintptr_t> begin_{nowhere};
  std::atomic<std::size_t> size_{0};
  std::atomic<std::size_t> used_{0};
};

[[gnu::visibility("hidden")]] extern constinit BlockRange blocks;

}  // namespace ibvexp::queue
