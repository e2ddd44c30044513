// The device's clock, modern to legacy. No calls.
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs_exp.h>

#include <cstdint>

namespace ibvexp::translate {

// (exp <- modern)
inline ibv_exp_clock_info to_legacy(const mlx5dv_clock_info &from) {
  ibv_exp_clock_info to{};
  to.cycles = from.last_cycles;
  to.nsec = from.nsec;
  to.frac = from.frac;
  to.mask = from.mask;
  to.shift = from.shift;
  to.mult = from.mult;
  return to;
}

// Wall-clock nanoseconds of a moment within half a period of the counter, before
// or after the one in clock. The product is wider than the inline of the legacy
// header has it: a clock_info may grow old.
constexpr std::uint64_t cycles_to_ns(const ibv_exp_clock_info &clock, std::uint64_t cycles) {
  __extension__ using Wide = unsigned __int128;
  const std::uint64_t ahead = (cycles - clock.cycles) & clock.mask;
  if (ahead <= clock.mask / 2)
    return clock.nsec +
           static_cast<std::uint64_t>((Wide{ahead} * clock.mult + clock.frac) >> clock.shift);
  const std::uint64_t behind = (clock.cycles - cycles) & clock.mask;
  return clock.nsec -
         static_cast<std::uint64_t>((Wide{behind} * clock.mult - clock.frac) >> clock.shift);
}

}  // namespace ibvexp::translate
