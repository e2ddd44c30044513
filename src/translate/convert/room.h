// How large libmlx5 assumes a send queue entry to be, and how a request for a larger
// one looks. Its overflow check counts requests, not bytes: a larger entry
// would run over the end of the queue.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace ibvexp::translate {

// Bytes that libmlx5 counts for everything but data, with the full set of
// operations: the largest is binding a window. Before v44 and since. Of the types that change keys.
constexpr std::uint32_t overhead(ibv_qp_type type) {
  constexpr std::uint32_t address = 48, xrc = 16, window = 192;
  return window + (type == IBV_QPT_XRC_SEND ? xrc : type == IBV_QPT_DRIVER ? address : 0);
}

// Bytes in front of an inline segment's data.
inline constexpr std::uint32_t inline_header = 4;

// The max_inline_data to ask for, so that a key change of that many bytes fits.
constexpr std::uint32_t inline_data_for(ibv_qp_type type, std::uint32_t raw_bytes) {
  const std::uint32_t counted = overhead(type) + inline_header;
  return raw_bytes > counted ? raw_bytes - counted : 0;
}

// A key change with that many inline entries: control, key control, key context,
// entries in groups of four.
constexpr std::uint32_t umr_bytes(ibv_qp_type type, std::uint32_t entries) {
  const std::uint32_t address = type == IBV_QPT_DRIVER ? 48 : 0;
  return 16 + address + 48 + 64 + 16 * ((entries + 3) / 4 * 4);
}
// The most entries that leave an entry within what the device reads.
inline constexpr std::uint32_t most_inline_entries = 52;
static_assert(umr_bytes(IBV_QPT_DRIVER, most_inline_entries) <= 63 * 16);
static_assert(umr_bytes(IBV_QPT_RC, most_inline_entries + 4) > 63 * 16);
static_assert(inline_data_for(IBV_QPT_RC, umr_bytes(IBV_QPT_RC, 52)) == 764);

}  // namespace ibvexp::translate
