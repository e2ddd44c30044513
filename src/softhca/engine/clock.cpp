#include "engine/clock.h"

#include <rdma/mlx5-abi.h>

#include <algorithm>
#include <ctime>
#include <vector>

#include "engine/engine.h"
#include "engine/traps.h"

namespace softhca {

namespace {

struct Pages {
  u8 *core_clock;
  u8 *clock_info;
  u32 sign = 0;  // of the seqlock in clock_info: a page made anew goes on with it
};

std::vector<Pages> &pages() {
  static auto &list = *new std::vector<Pages>;
  return list;
}

u64 g_last_info_ns;
u64 g_shown_ns;  // what the counters show

// The device counts nanoseconds; shift and multiplier are those of a 1 GHz
// clock: nanoseconds = cycles * mult >> shift.
constexpr u32 clock_shift = 20;
constexpr u32 clock_mult = 1u << clock_shift;
constexpr u64 info_period_ns = 100'000'000;

u64 read_clock(clockid_t id) {
  timespec t;
  clock_gettime(id, &t);
  return static_cast<u64>(t.tv_sec) * 1'000'000'000 + static_cast<u64>(t.tv_nsec);
}

// What the system's clock is ahead of the device's. Between two readings the thread may lose the
// processor, so the closest of a few counts.
u64 read_wall_offset() {
  constexpr u64 close_enough_ns = 1000;
  u64 best = 0, best_gap = ~u64{0};
  for (int i = 0; i < 10 && best_gap > close_enough_ns; ++i) {
    const u64 before = read_clock(CLOCK_MONOTONIC), wall = read_clock(CLOCK_REALTIME);
    const u64 gap = read_clock(CLOCK_MONOTONIC) - before;
    if (gap >= best_gap) continue;
    best_gap = gap;
    best = wall - before - gap / 2;
  }
  return best;
}

// Read once, as by the kernel's driver (mlx5_timecounter_init()): a system whose clock is set
// afterwards does not set the device's.
u64 wall_ns(u64 device_ns) {
  static const u64 offset = read_wall_offset();
  return device_ns + offset;
}

// A seqlock with one writer: readers retry while bit 0 is set or the sign
// has changed.
void write_info(Pages &p) {
  auto *info = reinterpret_cast<mlx5_ib_clock_info *>(p.clock_info);
  const u64 now_ns = read_clock(CLOCK_MONOTONIC), wall = wall_ns(now_ns);
  __atomic_store_n(&info->sign, ++p.sign, __ATOMIC_RELEASE);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  info->nsec = wall;
  info->cycles = now_ns;
  info->frac = 0;
  info->mult = clock_mult;
  info->shift = clock_shift;
  info->mask = ~u64{0} >> 1;
  info->overflow_period = 1'000'000'000;
  __atomic_store_n(&info->sign, ++p.sign, __ATOMIC_RELEASE);
}

// High word first, then low, then high again: software reads high, low, high
// and retries when the high words differ.
void write_counter(u8 *page, u64 now_ns) {
  auto *words = reinterpret_cast<u32 *>(page);
  __atomic_store_n(&words[0], swap32(static_cast<u32>(now_ns >> 32)), __ATOMIC_RELEASE);
  __atomic_store_n(&words[1], swap32(static_cast<u32>(now_ns)), __ATOMIC_RELEASE);
}

void fill_page(u8 *page) {
  for (Pages &p : pages()) {
    if (p.core_clock == page) write_counter(page, read_clock(CLOCK_MONOTONIC));
    if (p.clock_info == page) write_info(p);
  }
}

}  // namespace

void engine_add_clock_page(u8 *core_clock, u8 *clock_info) {
  pages().push_back({core_clock, clock_info});
  for (u8 *page : {core_clock, clock_info}) {
    fill_page(page);
    traps_need(page, fill_page);
  }
}

void engine_remove_clock_page(u8 *core_clock) {
  std::erase_if(pages(), [&](const Pages &p) {
    if (p.core_clock != core_clock) return false;
    for (const u8 *page : {p.core_clock, p.clock_info}) traps_need_not(page);
    return true;
  });
}

void clock_show(u64 now_ns) {
  g_shown_ns = std::max(g_shown_ns, now_ns);
  for (const Pages &p : pages()) write_counter(p.core_clock, now_ns);
}

void clock_tick(u64 now_ns) {
  const bool info = now_ns > g_last_info_ns + info_period_ns;
  // A thread that waited for the device's lock has an earlier time than others have shown.
  now_ns = g_shown_ns = std::max(g_shown_ns, now_ns);
  for (Pages &p : pages()) {
    write_counter(p.core_clock, now_ns);
    if (info) write_info(p);
  }
  if (info) g_last_info_ns = now_ns;
}

}  // namespace softhca
