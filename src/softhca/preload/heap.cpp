// operator new and delete of this library, and of the C++ library that is linked into it,
// without libc. The device's thread allocates at any time, also while a program overwrites
// libc's functions for memory (base/memory_calls.h): malloc calls these. And the device
// runs in locks that a program may take inside of an allocator.
//
// Blocks come from regions and return to the list of their size; large ones are mapped.
#include "preload/heap.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>

#include "base/memory_calls.h"
#include "base/types.h"

namespace softhca {

namespace {

// In front of what the caller gets.
struct Header {
  u64 offset;  // from the begin of the block
  u64 bytes;   // of the block
};
struct Free {
  Free *next;
};

// Four sizes from each power of two to the next.
constexpr size_t log_smallest = 6, smallest = 1 << log_smallest, largest = 1 << 20;
constexpr size_t region_bytes = 1 << 18, most_in_region = region_bytes / 8;

constexpr size_t list_of(size_t bytes) {
  if (bytes <= smallest) return 0;
  const size_t power = static_cast<size_t>(std::bit_width(bytes - 1)) - 1;
  return (power - log_smallest) * 4 + ((bytes - 1) >> (power - 2)) % 4 + 1;
}
constexpr size_t bytes_of(size_t list) {
  return list == 0 ? smallest : (5 + (list - 1) % 4) << ((list - 1) / 4 + log_smallest - 2);
}
static_assert(bytes_of(list_of(65)) == 80 && bytes_of(list_of(80)) == 80);
static_assert(bytes_of(list_of(113)) == 128 && bytes_of(list_of(128)) == 128);
static_assert(bytes_of(list_of(largest)) == largest);
static_assert(most_in_region % 4096 == 0);

struct Heap {
  std::mutex mutex;
  Free *lists[list_of(largest) + 1];
  u8 *next, *end;  // of the latest region
};
constinit Heap heap{};

u8 *map(size_t bytes) {
  void *at =
      calls::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return at == MAP_FAILED ? nullptr : static_cast<u8 *>(at);
}

u8 *block_of(size_t bytes) {
  if (bytes > largest) return map(bytes);
  const std::lock_guard lock(heap.mutex);
  Free *&list = heap.lists[list_of(bytes)];
  if (list != nullptr) {
    u8 *block = reinterpret_cast<u8 *>(list);
    list = list->next;
    return block;
  }
  if (bytes > most_in_region) return map(bytes);
  if (static_cast<size_t>(heap.end - heap.next) < bytes) {
    u8 *fresh = map(region_bytes);
    if (fresh == nullptr) return nullptr;
    heap.next = fresh;
    heap.end = fresh + region_bytes;
  }
  u8 *block = heap.next;
  heap.next += bytes;
  return block;
}

}  // namespace

void heap_stop() { heap.mutex.lock(); }
void heap_go_on() { heap.mutex.unlock(); }

}  // namespace softhca

using namespace softhca;

void *operator new(size_t bytes, std::align_val_t alignment) {
  const size_t align = std::max(static_cast<size_t>(alignment), alignof(std::max_align_t));
  if (bytes > PTRDIFF_MAX - align - sizeof(Header)) throw std::bad_alloc();
  // A block begins at a multiple of 16, and so does what is behind the header.
  size_t whole = bytes + sizeof(Header) + align - alignof(std::max_align_t);
  if (whole <= largest) whole = bytes_of(list_of(whole));
  u8 *block = block_of(whole);
  if (block == nullptr) throw std::bad_alloc();
  u8 *given =
      reinterpret_cast<u8 *>(align_up(reinterpret_cast<u64>(block) + sizeof(Header), align));
  new (given - sizeof(Header)) Header{static_cast<u64>(given - block), whole};
  return given;
}

void *operator new(size_t bytes) {
  return operator new (bytes, std::align_val_t{alignof(std::max_align_t)});
}

void operator delete(void *given) noexcept {
  if (given == nullptr) return;
  const Header h = *(static_cast<Header *>(given) - 1);
  u8 *block = static_cast<u8 *>(given) - h.offset;
  if (h.bytes > largest) {
    calls::munmap(block, h.bytes);
    return;
  }
  const std::lock_guard lock(heap.mutex);
  Free *&list = heap.lists[list_of(h.bytes)];
  list = new (block) Free{list};
}
void operator delete(void *given, size_t) noexcept { operator delete(given); }
void operator delete(void *given, std::align_val_t) noexcept { operator delete(given); }
void operator delete(void *given, size_t, std::align_val_t) noexcept { operator delete(given); }
