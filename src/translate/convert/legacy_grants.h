// The size of send queues that the legacy provider granted. Programs rely on it: they ask
// for little and use all that was granted. No calls.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>

namespace ibvexp::translate {

// Largest inline data of an entry, in bytes: the device reads 63 units of 16, minus the
// control, address and remote address segments. type: the modern one.
constexpr std::uint32_t largest_inline_data(ibv_qp_type type) {
  constexpr std::uint32_t control = 16, address = 48, remote = 16, xrc = 16, ethernet = 32;
  const std::uint32_t header = [&]() -> std::uint32_t {
    switch (type) {
      case IBV_QPT_RC:
      case IBV_QPT_UC: return control + remote;
      case IBV_QPT_XRC_SEND: return control + xrc + remote;
      case IBV_QPT_UD: return control + address;
      case IBV_QPT_DRIVER: return control + address + remote;
      case IBV_QPT_RAW_PACKET: return control + ethernet;
      default: return 0;
    }
  }();
  return 63 * 16 - header - 4;
}

// How the legacy provider counted an entry, in bytes and pieces.
struct LegacyEntry {
  std::uint32_t overhead;    // bytes besides data, for connected types with room for a key change
  std::uint32_t max_pieces;  // of a gather list
  bool atomics;
};

// The entry for the modern type. overhead 0: not known.
constexpr LegacyEntry legacy_entry(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_RC:
    case IBV_QPT_XRC_SEND: return {192, 30, true};
    case IBV_QPT_UC: return {192, 60, false};
    case IBV_QPT_UD: return {64, 60, false};
    case IBV_QPT_DRIVER: return {80, 27, true};
    case IBV_QPT_RAW_PACKET: return {48, 60, false};
    default: return {0, 0, false};
  }
}

// What a program requests besides ibv_qp_cap.
struct LegacyExtra {
  std::uint32_t atomic_bytes = 0;  // the argument of an atomic
  std::uint32_t key_pieces = 0;    // of a key change in an entry
  std::uint32_t tso_header = 0;    // bytes
};

// What it was granted.
struct LegacyGrants {
  std::uint32_t requests, pieces, inline_data;
  std::uint32_t blocks;  // of the queue, of 64 bytes
};

// Entries are whole blocks, and all of an entry except its overhead is granted. nullopt if
// the entry would be too large, or is not known.
[[gnu::always_inline]] constexpr std::optional<LegacyGrants> legacy_grants(
    ibv_qp_type type, const ibv_qp_cap &cap, const LegacyExtra &extra = {}) {
  constexpr std::uint32_t block = 64, unit = 16, header = 4, largest = 1024;
  const LegacyEntry entry = legacy_entry(type);
  if (entry.overhead == 0 || cap.max_send_wr == 0 || cap.max_send_wr > 1u << 20) return {};
  if (cap.max_inline_data > largest || cap.max_send_sge > entry.max_pieces ||
      extra.atomic_bytes > largest || extra.key_pieces > largest)
    return {};
  const auto round_up = [](std::uint32_t n, std::uint32_t to) { return (n + to - 1) / to * to; };
  // UD requests may have no piece.
  const std::uint32_t least = type == IBV_QPT_UD ? 0 : 1;
  const std::uint32_t gather =
      std::max(cap.max_send_sge, least) * unit + (entry.atomics ? 4 * extra.atomic_bytes : 0);
  const std::uint32_t data =
      cap.max_inline_data != 0 ? round_up(header + cap.max_inline_data, unit) : 0;
  const std::uint32_t pieces = round_up(extra.key_pieces, 4) * unit;
  const std::uint32_t bytes = round_up(
      entry.overhead + round_up(extra.tso_header, unit) + std::max({gather, data, pieces}), block);
  if (bytes > largest || bytes < entry.overhead + unit) return {};
  const std::uint32_t queue = std::bit_ceil(cap.max_send_wr * bytes);
  const std::uint32_t room = bytes - entry.overhead;
  return LegacyGrants{queue / bytes, std::min(room / unit, entry.max_pieces), room - header,
                      queue / block};
}

}  // namespace ibvexp::translate
