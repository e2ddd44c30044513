// Ringing for new entries in a send queue.
//
// Queues share a register of the device, also with those that libmlx5 drives under its own lock,
// which is private. Eight bytes at once need no lock; whole entries ("BlueFlame") would.
#pragma once

#include "translate/queue/engine/barrier.h"
#include "translate/queue/engine/bytes.h"

namespace ibvexp::engine {

struct Doorbell {
  std::uint8_t *page = nullptr;     // the register
  std::uint32_t *record = nullptr;  // blocks posted, in memory

  // posted: blocks, head: the last entry's first eight bytes.
  [[gnu::always_inline]] void ring(std::uint32_t posted, std::uint64_t head) {
    before_record();
    __atomic_store_n(record, be(posted & 0xffff), __ATOMIC_RELEASE);
    before_doorbell();
    __atomic_store_n(reinterpret_cast<std::uint64_t *>(page), head, __ATOMIC_RELAXED);
    after_doorbell();
  }
};

}  // namespace ibvexp::engine
