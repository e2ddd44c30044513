#include "model/patience.h"

#include "catch.h"

using namespace softhca;

namespace {

constexpr u64 second = 1'000'000'000, begin = 50 * second;

}  // namespace

TEST_CASE("A full ring is waited for once", "[patience]") {
  Patience patience;
  CHECK(patience.lasts(3, begin));
  CHECK(patience.lasts(3, begin + Patience::longest_ns - 1));
  CHECK_FALSE(patience.lasts(3, begin + Patience::longest_ns));
  // What comes next is lost at once, that to others is not.
  CHECK_FALSE(patience.lasts(3, begin + Patience::longest_ns + second));
  CHECK(patience.lasts(4, begin + Patience::longest_ns + second));
}

TEST_CASE("Room in a ring makes its sender patient again", "[patience]") {
  Patience patience;
  CHECK(patience.lasts(3, begin));
  CHECK_FALSE(patience.lasts(3, begin + Patience::longest_ns));
  patience.has_room(3);
  CHECK(patience.lasts(3, begin + Patience::longest_ns + 1));
}

TEST_CASE("Who returns after long has not waited all the time", "[patience]") {
  Patience patience;
  CHECK(patience.lasts(3, begin));
  CHECK(patience.lasts(3, begin + 5 * Patience::longest_ns));
  CHECK(patience.lasts(3, begin + 6 * Patience::longest_ns - 1));
  CHECK_FALSE(patience.lasts(3, begin + 6 * Patience::longest_ns));
}
