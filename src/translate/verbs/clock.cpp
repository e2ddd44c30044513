#include "translate/verbs/clock.h"

#include <cerrno>

#include "base/keep_errno.h"
#include "trace/diagnose.h"
#include "translate/convert/clock_convert.h"
#include "translate/state/clock_info.h"

namespace ibvexp::translate {

namespace {

constexpr EntryId querying = EntryId::ibv_exp_query_values;

// mlx5 puts all the cycles into tv_nsec.
Result<std::uint64_t> read_cycles(ibv_context *context) {
  ibv_values_ex values{};
  values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  const KeepErrno keep;
  if (const auto read = outcome(ibv_query_rt_values_ex(context, &values)); !read)
    return read.failure();
  if ((values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK) == 0) return Error{ENOTSUP};
  return static_cast<std::uint64_t>(values.raw_clock.tv_nsec);
}

}  // namespace

Result<void> query_values(ibv_context *context, int q_values, ibv_exp_values *values) {
  if (values == nullptr) return invalid(querying, "values", 0, "must not be null");
  constexpr std::uint32_t known = IBV_EXP_VALUES_RESERVED - 1;
  if ((values->comp_mask & ~known) != 0)
    return invalid(querying, "comp_mask", values->comp_mask, "unknown bits");
  if ((static_cast<std::uint32_t>(q_values) & ~known) != 0)
    ignored(querying, "q_values", static_cast<std::uint32_t>(q_values), "unknown bits");
  const std::uint32_t asked = static_cast<std::uint32_t>(q_values) & known;
  const auto has = [&](std::uint32_t bit) { return (asked & bit) != 0; };

  // HW_CLOCK_NS is computed from a read of our own, whether HW_CLOCK is asked for
  // or not.
  values->comp_mask = 0;  // also where it fails
  ibv_exp_clock_info info{};
  if (has(IBV_EXP_VALUES_CLOCK_INFO | IBV_EXP_VALUES_HW_CLOCK_NS)) {
    const auto read = read_clock_info(context);
    if (!read) return read.failure();
    info = read.value();
  }
  std::uint64_t cycles = 0;
  if (has(IBV_EXP_VALUES_HW_CLOCK | IBV_EXP_VALUES_HW_CLOCK_NS)) {
    const auto read = read_cycles(context);
    if (!read) return read.failure();
    cycles = read.value();
  }
  // Member by member: the structure of releases up to 4.0 ends before clock_info.
  values->comp_mask = asked;
  if (has(IBV_EXP_VALUES_CLOCK_INFO)) values->clock_info = info;
  if (has(IBV_EXP_VALUES_HW_CLOCK)) values->hwclock = cycles;
  if (has(IBV_EXP_VALUES_HW_CLOCK_NS)) values->hwclock_ns = cycles_to_ns(info, cycles);
  return {};
}

Result<std::uint64_t> cqe_ts_to_ns(ibv_exp_clock_info *clock, std::uint64_t ts) {
  constexpr EntryId id = EntryId::ibv_exp_cqe_ts_to_ns;
  if (clock == nullptr) return invalid(id, "clock_info", 0, "must not be null");
  if (clock->comp_mask != 0) return invalid(id, "comp_mask", clock->comp_mask, "unknown bits");
  constexpr std::uint32_t most = 63;  // bits of a count of cycles
  if (clock->shift > most) return invalid(id, "shift", clock->shift, "more than 63");
  return cycles_to_ns(*clock, ts);
}

}  // namespace ibvexp::translate
