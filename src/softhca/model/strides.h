// WQEs that are divided into strides: packets take as many as they need, one behind the other.
#pragma once

#include "base/types.h"

namespace softhca {

struct Strides {
  u32 log_bytes = 0;  // of one
  u32 log_count = 0;  // of a WQE; 0: WQEs are not divided
  u32 used = 0;       // of the current WQE

  bool on() const { return log_count != 0; }
  u32 count() const { return 1u << log_count; }
  u32 left() const { return count() - used; }
  u32 needed(u32 bytes) const { return (bytes + (1u << log_bytes) - 1) >> log_bytes; }
  u64 offset() const { return u64{used} << log_bytes; }  // of the next packet in the WQE
};

// In the byte count of a completion: no packet, what is left of the WQE stays unused.
constexpr u32 filler_bit = 1u << 31;
// The place of a packet in its message.
constexpr u32 last_packet_bit = 1u << 30, first_packet_bit = 1u << 29;

}  // namespace softhca
