// The conversion to the system's time that libmlx5 maps, beside a clock that is set.
#include "engine/clock.h"

#include <rdma/mlx5-abi.h>

#include <ctime>

#include "catch.h"
#include "engine/engine.h"

using namespace softhca;

namespace {

time_t g_set_by_s;  // what the system's clock was set by

struct alignas(4096) Page {
  u8 bytes[4096];
};

}  // namespace

// Linked with --wrap=clock_gettime.
extern "C" int __real_clock_gettime(clockid_t id, timespec *t);
extern "C" int __wrap_clock_gettime(clockid_t id, timespec *t) {
  const int status = __real_clock_gettime(id, t);
  if (id == CLOCK_REALTIME) t->tv_sec += g_set_by_s;
  return status;
}

TEST_CASE("Time stamps do not follow a system clock that is set", "[clock_test]") {
  static Page counter, info_page;
  const auto &info = *reinterpret_cast<const mlx5_ib_clock_info *>(info_page.bytes);
  engine_add_clock_page(counter.bytes, info_page.bytes);
  const u64 offset = info.nsec - info.cycles;
  timespec now;
  REQUIRE(__real_clock_gettime(CLOCK_REALTIME, &now) == 0);
  CHECK(info.nsec / 1'000'000'000 + 60 > static_cast<u64>(now.tv_sec));

  const u32 sign = info.sign;
  g_set_by_s = 3600;
  clock_tick(info.cycles + 1'000'000'000);
  CHECK(info.sign != sign);
  CHECK(info.nsec - info.cycles == offset);
  engine_remove_clock_page(counter.bytes);
}
