// Doorbell registers of contexts whose library is older than dynamic UARs.
#include "uverbs/bfregs.h"

#include <cerrno>
#include <set>

#include "catch.h"

using softhca::u32;
using softhca::uverbs::Bfregs;

TEST_CASE("the last registers belong to one queue pair each") {
  Bfregs b;
  REQUIRE(b.open(16, 4) == 0);
  CHECK(b.in_use());
  CHECK(b.pages() == 8);
  std::set<u32> own;
  for (int i = 0; i < 4; ++i) own.insert(b.take());
  CHECK(own == std::set<u32>{12, 13, 14, 15});
  // The rest is shared evenly, and the first is not used as long as there are others.
  std::multiset<u32> shared;
  for (int i = 0; i < 22; ++i) shared.insert(b.take());
  for (u32 i = 1; i < 12; ++i) CHECK(shared.count(i) == 2);
  // One that is given back is taken first.
  b.give(13);
  CHECK(b.take() == 13);
  b.close();
  CHECK_FALSE(b.in_use());
}

TEST_CASE("with nothing between, what is left over shares the first register") {
  Bfregs b;
  REQUIRE(b.open(4, 3) == 0);
  for (u32 i = 1; i < 4; ++i) CHECK(b.take() == i);
  CHECK(b.take() == 0);
  CHECK(b.take() == 0);
}

TEST_CASE("libraries count registers that are not used") {
  CHECK(Bfregs::as_library_counts(0) == 0);
  CHECK(Bfregs::as_library_counts(1) == 1);
  CHECK(Bfregs::as_library_counts(2) == 4);
  CHECK(Bfregs::as_library_counts(15) == 29);
}

TEST_CASE("contexts cannot have any number of registers") {
  Bfregs b;
  CHECK(b.open(0, 0) == EINVAL);
  CHECK(b.open(4, 4) == EINVAL);
  CHECK(b.open(514, 4) == ENOMEM);
  CHECK_FALSE(b.in_use());
}
