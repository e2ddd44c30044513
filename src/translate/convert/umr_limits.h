// What is reported about memory keys made by work requests. They ask for
// these numbers as they are, so each is one that creation grants.
#pragma once

#include <cstdint>

#include "translate/convert/room.h"

namespace ibvexp::translate {

// The most entries that libmlx5 takes for one key: 16 bits, in fours.
inline constexpr std::uint32_t largest_key = 65532;

// One of them is the header of a repeating pattern, as inline.
inline constexpr std::uint32_t max_key_entries = largest_key - 1;
inline constexpr std::uint32_t max_inline_entries = most_inline_entries - 1;

// Bytes of one entry.
inline constexpr std::uint64_t largest_key_piece = std::uint64_t{1} << 31;

// Keys of keys of keys, of memory. No source in rdma-core: what the legacy kernel
// reported of ConnectX-4 and later.
inline constexpr std::uint32_t max_key_depth = 4;

// The legacy provider knew one.
inline constexpr std::uint32_t max_stride_dimensions = 1;

}  // namespace ibvexp::translate
