// Ringing for new entries in a send queue.
//
// A register of the device is shared by queues, also by such that libmlx5 drives
// itself under a lock that nobody else can take. Eight bytes at once need no lock.
// Whole entries ("BlueFlame") go to registers that a queue has for itself.
#pragma once

#include "translate/queue/engine/barrier.h"
#include "translate/queue/engine/bytes.h"

namespace ibvexp::engine {

struct Doorbell {
  std::uint8_t *page = nullptr;     // the register
  std::uint32_t *record = nullptr;  // blocks posted, in memory
  // Of a register of its own: bytes of each of its two halves, which take turns.
  // 0: shared.
  std::uint32_t half = 0;
  std::uint32_t offset = 0;

  // posted: blocks, head: the last entry's first eight bytes.
  [[gnu::always_inline]] void ring(std::uint32_t posted, std::uint64_t head) {
    announce(posted);
    __atomic_store_n(reinterpret_cast<std::uint64_t *>(page + offset), head, __ATOMIC_RELAXED);
    finish();
  }

  // The entry itself, in a ring from begin to end.
  void ring_entry(std::uint32_t posted, const std::uint8_t *entry, std::uint32_t blocks,
                  const std::uint8_t *begin, const std::uint8_t *end) {
    announce(posted);
    std::uint8_t *to = page + offset;
    for (; blocks != 0; --blocks, to += 64) {
      for (int i = 0; i < 64; i += 8)
        __atomic_store_n(reinterpret_cast<std::uint64_t *>(to + i), load<std::uint64_t>(entry + i),
                         __ATOMIC_RELAXED);
      entry += 64;
      if (entry == end) entry = begin;
    }
    finish();
  }

 private:
  [[gnu::always_inline]] void announce(std::uint32_t posted) {
    before_record();
    __atomic_store_n(record, be(posted & 0xffff), __ATOMIC_RELEASE);
    before_doorbell();
  }
  [[gnu::always_inline]] void finish() {
    after_doorbell();
    offset ^= half;
  }
};

}  // namespace ibvexp::engine
