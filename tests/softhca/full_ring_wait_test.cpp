#include "model/full_ring_wait.h"

#include "catch.h"

using namespace softhca;

namespace {

constexpr u64 second = 1'000'000'000, begin = 50 * second;

}  // namespace

TEST_CASE("A full ring is waited for once", "[full_ring_wait]") {
  FullRingWait full_ring_wait;
  CHECK(full_ring_wait.goes_on(3, begin));
  CHECK(full_ring_wait.goes_on(3, begin + FullRingWait::longest_ns - 1));
  CHECK_FALSE(full_ring_wait.goes_on(3, begin + FullRingWait::longest_ns));
  // What comes next is lost at once, that to others is not.
  CHECK_FALSE(full_ring_wait.goes_on(3, begin + FullRingWait::longest_ns + second));
  CHECK(full_ring_wait.goes_on(4, begin + FullRingWait::longest_ns + second));
}

TEST_CASE("Room in a ring makes its sender wait again", "[full_ring_wait]") {
  FullRingWait full_ring_wait;
  CHECK(full_ring_wait.goes_on(3, begin));
  CHECK_FALSE(full_ring_wait.goes_on(3, begin + FullRingWait::longest_ns));
  full_ring_wait.has_room(3);
  CHECK(full_ring_wait.goes_on(3, begin + FullRingWait::longest_ns + 1));
}

TEST_CASE("Who returns after long has not waited all the time", "[full_ring_wait]") {
  FullRingWait full_ring_wait;
  CHECK(full_ring_wait.goes_on(3, begin));
  CHECK(full_ring_wait.goes_on(3, begin + 5 * FullRingWait::longest_ns));
  CHECK(full_ring_wait.goes_on(3, begin + 6 * FullRingWait::longest_ns - 1));
  CHECK_FALSE(full_ring_wait.goes_on(3, begin + 6 * FullRingWait::longest_ns));
}
