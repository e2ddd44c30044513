// What a process shares: its slot's file, which says where its memory is, and
// that memory: one Control at the start, then one ring segment per possible
// sender, without pages until that sender turns up.
//
// Every field says who writes it. Only the owner of the memory and, for its own
// ring, the sender ever store to a line; the bitmap and the bell are the only
// words that several processes modify, always atomically. That is how it is
// meant: a broken peer may store anything anywhere, so a word read from here is
// a hint until it has been checked, and is read once.
#pragma once

#include <atomic>

#include "base/types.h"
#include "wire/fabric.h"

namespace softhca {

constexpr u32 control_magic = 0x53484341;  // "SHCA"
constexpr u32 control_version = 4;
constexpr u32 cache_line = 64;
constexpr u32 min_ring_bytes = 64 * 1024;  // two bursts and a skip always fit
constexpr u32 max_ring_bytes = 64 * 1024 * 1024;

// One direction between two processes: single producer, single consumer.
// Positions count bytes since the file was made and never go back, so that a
// new sender in an old sender's slot simply continues after it.
struct RingMeta {
  alignas(cache_line) std::atomic<u64> head;  // sender: end of what is published
  std::atomic<u32> generation;                // sender: who is sending; 0: no sender yet
  alignas(cache_line) std::atomic<u64> tail;  // owner: end of what was taken
  std::atomic<u32> confirmed;                 // owner: generation it listens to
};
static_assert(sizeof(RingMeta) == 2 * cache_line);

struct Control {
  std::atomic<u32> closed;                        // owner: about to leave
  std::atomic<u32> multicast_groups;              // owner
  std::atomic<u32> flow_rules;                    // owner
  alignas(cache_line) std::atomic<u32> bell;      // futex; incremented to wake the owner
  alignas(cache_line) std::atomic<u32> sleeping;  // owner: threads in wait()
  std::atomic<u32> rung;                          // a wake-up is under way
  // Bit per sender, set by the sender when it has published and found it
  // clear, cleared by the owner when the ring has been quiet for a while.
  alignas(cache_line) std::atomic<u64> active[max_slots / 64];
  RingMeta rings[max_slots];
};
static_assert(std::atomic<u64>::is_always_lock_free && std::atomic<u32>::is_always_lock_free);

constexpr u64 control_bytes = align_up(sizeof(Control), page_size);
constexpr u64 segment_offset(u16 sender, u32 ring_bytes) {
  return control_bytes + u64{sender} * ring_bytes;
}
constexpr u64 memory_bytes(u32 ring_bytes) { return segment_offset(max_slots, ring_bytes); }

// The content of a slot's file.
struct SlotRecord {
  u32 magic, version;
  u32 pid;         // of the owner, for people
  u32 ring_bytes;  // a power of two
  i32 memory;      // System V identifier of the owner's memory
  u32 primary;     // 0, or the slot of the same owner that records for this one go to
};

// A record: one line of framing, the packet header, the payload; contiguous
// and padded to whole lines. A skip record fills the end of the ring when the
// next record does not fit there.
struct RecordFrame {
  u32 length;  // of the whole record, a multiple of cache_line
  u32 kind;
  static constexpr u32 data = 0x64617461, skip = 0x736b6970;
};
constexpr u32 record_overhead = cache_line + sizeof(PacketHeader);
constexpr u32 record_bytes(u32 payload) {
  return static_cast<u32>(align_up(record_overhead + payload, cache_line));
}
static_assert(record_overhead % cache_line == 0, "payloads start on a cache line");
static_assert(2 * record_bytes(burst_bytes) <= min_ring_bytes);

}  // namespace softhca
