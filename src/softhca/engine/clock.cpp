#include "engine/clock.h"

#include <rdma/mlx5-abi.h>

#include <algorithm>
#include <ctime>
#include <vector>

#include "engine/engine.h"

namespace softhca {

namespace {

struct Pages {
  u8 *core_clock;
  u8 *clock_info;
};

std::vector<Pages> &pages() {
  static auto &list = *new std::vector<Pages>;
  return list;
}

u64 g_last_info_ns;

// The device counts nanoseconds; shift and multiplier are those of a 1 GHz
// clock: nanoseconds = cycles * mult >> shift.
constexpr u32 clock_shift = 20;
constexpr u32 clock_mult = 1u << clock_shift;
constexpr u64 info_period_ns = 100'000'000;

// A seqlock with one writer: readers retry while bit 0 is set or the sign
// has changed.
void write_info(u8 *page, u64 now_ns) {
  auto *info = reinterpret_cast<mlx5_ib_clock_info *>(page);
  timespec real;
  clock_gettime(CLOCK_REALTIME, &real);
  __atomic_store_n(&info->sign, info->sign + 1, __ATOMIC_RELEASE);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  info->nsec = static_cast<u64>(real.tv_sec) * 1'000'000'000 + static_cast<u64>(real.tv_nsec);
  info->cycles = now_ns;
  info->frac = 0;
  info->mult = clock_mult;
  info->shift = clock_shift;
  info->mask = ~u64{0} >> 1;
  info->overflow_period = 1'000'000'000;
  __atomic_store_n(&info->sign, info->sign + 1, __ATOMIC_RELEASE);
}

// High word first, then low, then high again: software reads high, low, high
// and retries when the high words differ.
void write_counter(u8 *page, u64 now_ns) {
  auto *words = reinterpret_cast<u32 *>(page);
  __atomic_store_n(&words[0], swap32(static_cast<u32>(now_ns >> 32)), __ATOMIC_RELEASE);
  __atomic_store_n(&words[1], swap32(static_cast<u32>(now_ns)), __ATOMIC_RELEASE);
}

}  // namespace

void engine_add_clock_page(u8 *core_clock, u8 *clock_info) {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  const u64 now = static_cast<u64>(t.tv_sec) * 1'000'000'000 + static_cast<u64>(t.tv_nsec);
  pages().push_back({core_clock, clock_info});
  write_counter(core_clock, now);
  write_info(clock_info, now);
}

void engine_remove_clock_page(u8 *core_clock) {
  std::erase_if(pages(), [&](const Pages &p) { return p.core_clock == core_clock; });
}

void clock_tick(u64 now_ns) {
  const bool info = now_ns > g_last_info_ns + info_period_ns;
  for (const Pages &p : pages()) {
    write_counter(p.core_clock, now_ns);
    if (info) write_info(p.clock_info, now_ns);
  }
  if (info) g_last_info_ns = now_ns;
}

}  // namespace softhca
