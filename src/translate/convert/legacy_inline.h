// Inline data that the legacy provider granted. Programs count on it: they ask for
// little and use what they were given. No calls.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstdint>

namespace ibvexp::translate {

// Bytes of an entry that are neither data nor the inline segment's header, as the
// legacy provider counted them: control, address, remote address. It left out what
// binding a window takes, which rdma-core counts for every queue pair, and the atomic
// operands of DC initiators. Where it had atomics counted, connected types have those
// 16 bytes too.
struct LegacyOverhead {
  std::uint32_t plain, with_atomics;
};

// Of the modern type.
constexpr LegacyOverhead legacy_overhead(ibv_qp_type type) {
  constexpr std::uint32_t control = 16, address = 48, remote = 16, xrc = 16, ethernet = 32;
  constexpr std::uint32_t operands = 16;
  switch (type) {
    case IBV_QPT_RC: return {control + remote, control + remote + operands};
    case IBV_QPT_XRC_SEND: return {control + xrc + remote, control + xrc + remote + operands};
    case IBV_QPT_UC: return {control + remote, control + remote};
    case IBV_QPT_UD: return {control + address, control + address};
    case IBV_QPT_DRIVER:
      return {control + address + remote, control + address + remote};  // 108 for 64 asked
    case IBV_QPT_RAW_PACKET: return {control + ethernet, control + ethernet};
    default: return {0, 0};
  }
}

// Bytes that an entry can carry inline: the device reads 63 units of 16.
constexpr std::uint32_t largest_inline_data(ibv_qp_type type) {
  return 63 * 16 - legacy_overhead(type).plain - 4;
}

// What was granted to a request, in bytes: entries are whole blocks of 64 bytes, and
// what data and gather list leave is inline room. 0 where nothing is known.
constexpr std::uint32_t legacy_inline_data(ibv_qp_type type, const ibv_qp_cap &cap) {
  constexpr std::uint32_t block = 64, unit = 16, header = 4, largest = 1024;
  const auto round_up = [](std::uint32_t n, std::uint32_t to) { return (n + to - 1) / to * to; };
  const auto granted = [&](std::uint32_t overhead) -> std::uint32_t {
    if (overhead == 0 || cap.max_inline_data > largest || cap.max_send_sge > largest / unit)
      return 0;
    const std::uint32_t gather = cap.max_send_sge * unit;
    const std::uint32_t data =
        cap.max_inline_data != 0 ? round_up(header + cap.max_inline_data, unit) : 0;
    const std::uint32_t entry = round_up(overhead + std::max(gather, data), block);
    return entry <= largest ? entry - overhead - header : 0;
  };
  if (cap.max_send_wr == 0) return 0;
  const LegacyOverhead overhead = legacy_overhead(type);
  return std::max(granted(overhead.plain), granted(overhead.with_atomics));
}

}  // namespace ibvexp::translate
