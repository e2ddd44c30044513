#include <sys/mman.h>

#include <cstring>
#include <new>

#include "base/lock.h"
#include "translate/queue/block_range.h"
#include "translate/queue/front.h"

namespace ibvexp::queue {

constinit BlockRange blocks;

namespace {

// Address space, not memory: half a million queue pairs. Less where the process
// may not have as much.
constexpr std::size_t most_bytes = std::size_t{1} << 30, fewest_bytes = std::size_t{1} << 24;

constexpr std::size_t slab_bytes = std::size_t{1} << 16;

// In front of what the program holds. In front of the first block of a slab it begins with the
// kind of the blocks.
constexpr std::size_t head_bytes = 64;

// An odd number of cache lines, so that the same member of many objects does not
// always fall into the same set of the cache.
constexpr std::size_t odd_lines(std::size_t bytes) { return ((bytes + 63) / 64 | 1) * 64; }

// Whatever kind a pointer into a slab is taken for, what is read behind it is
// memory.
constexpr std::size_t largest_block = odd_lines(head_bytes + sizeof(QpFront));

Mutex growing;

// Free blocks of one kind. fork() may copy the process between any two stores: the list is valid
// after each.
template <class Front>
class Shelf {
 public:
  Front &take() {
    for (;; grow()) {
      const std::lock_guard guard(lock_);
      Front *const front = first_.load(std::memory_order_relaxed);
      if (front == nullptr) continue;
      first_.store(front->own.next_free, std::memory_order_relaxed);
      return *front;
    }
  }

  void give_back(Front &front) noexcept {
    if (!lock_.try_lock_free()) [[unlikely]]
      return wait_and_give_back(front);
    put(front);
    lock_.unlock();
  }

  // Whether a block of this kind lies there. The address is inside the range.
  bool holds(const void *pointer) const noexcept {
    if (!blocks.taken(pointer, sizeof(Front))) return false;
    const std::size_t offset = blocks.offset(pointer) % slab_bytes, at = offset - head_bytes;
    const Shelf *kind;
    std::memcpy(&kind, static_cast<const std::uint8_t *>(pointer) - offset, sizeof(kind));
    return kind == this && offset >= head_bytes && at % block_bytes == 0 &&
           at + largest_block <= slab_bytes;
  }

 private:
  static constexpr std::size_t block_bytes = odd_lines(head_bytes + sizeof(Front));
  static_assert(alignof(Front) == 64 && block_bytes <= largest_block);

  void put(Front &front) noexcept {
    front.own.next_free = first_.load(std::memory_order_relaxed);
    first_.store(&front, std::memory_order_release);
  }

  [[gnu::noinline, gnu::cold]] void wait_and_give_back(Front &front) noexcept {
    const std::lock_guard guard(lock_);
    put(front);
  }

  [[gnu::noinline, gnu::cold]] void grow() {
    const MutexGuard guard(growing);
    std::uint8_t *slab = blocks.take(slab_bytes);
    if (slab == nullptr) throw std::bad_alloc();
    const Shelf *const kind = this;
    std::memcpy(slab, &kind, sizeof(kind));
    for (std::size_t at = 0; at + largest_block <= slab_bytes; at += block_bytes)
      give_back(*reinterpret_cast<Front *>(slab + at + head_bytes));
  }

  SpinLock lock_;
  std::atomic<Front *> first_{nullptr};
};

template <class Front>
constinit Shelf<Front> shelf;

}  // namespace

bool BlockRange::reserve() noexcept {
  for (std::size_t bytes = most_bytes; bytes >= fewest_bytes; bytes /= 2) {
    void *memory =
        mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) continue;
    size_.store(bytes, std::memory_order_release);
    begin_.store(reinterpret_cast<std::uintptr_t>(memory), std::memory_order_release);
    return true;
  }
  return false;
}

std::uint8_t *BlockRange::take(std::size_t bytes) noexcept {
  if (size_.load(std::memory_order_relaxed) == 0 && !reserve()) return nullptr;
  const std::size_t used = used_.load(std::memory_order_relaxed);
  if (size_.load(std::memory_order_relaxed) - used < bytes) return nullptr;
  auto *memory = reinterpret_cast<std::uint8_t *>(begin_.load(std::memory_order_relaxed)) + used;
  if (mprotect(memory, bytes, PROT_READ | PROT_WRITE) != 0) return nullptr;
  used_.store(used + bytes, std::memory_order_release);
  return memory;
}

template <class Front>
Front &take_block() {
  Front &front = shelf<Front>.take();
  std::memset(static_cast<void *>(&front), 0, sizeof(front));
  resource_of(front) = {};
  return front;
}
template QpFront &take_block<QpFront>();
template CqFront &take_block<CqFront>();
template SrqFront &take_block<SrqFront>();
template WqFront &take_block<WqFront>();

template <class Front>
void give_back(Front &front) noexcept {
  front.own.back = nullptr;
  shelf<Front>.give_back(front);
}
template void give_back(QpFront &) noexcept;
template void give_back(CqFront &) noexcept;
template void give_back(SrqFront &) noexcept;
template void give_back(WqFront &) noexcept;

template <class Front>
Front *find_front(const void *object) noexcept {
  if (!blocks.contain(object) || !shelf<Front>.holds(object)) return nullptr;
  auto *const front = front_at<Front>(object);
  return front->own.back != nullptr ? front : nullptr;
}
template QpFront *find_front<QpFront>(const void *) noexcept;
template CqFront *find_front<CqFront>(const void *) noexcept;

}  // namespace ibvexp::queue
