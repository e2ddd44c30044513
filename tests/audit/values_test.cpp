// The algebra of addresses: which expressions are a table, and which are not.
#include "tool/audit/binary/values.h"

#include <catch.h>

using namespace ibvexp::audit;

namespace {

Value argument(Values &v, Register r) { return v.symbol({Symbol::Kind::entry, r, 0}); }

}  // namespace

TEST_CASE("equal expressions are equal numbers") {
  Values v;
  const Value a = argument(v, rdi), b = argument(v, rsi);
  CHECK(v.add(a, b) == v.add(b, a));
  CHECK(v.sub(v.add(a, b), b) == a);
  CHECK(v.plus(v.plus(a, 8), -8) == a);
  CHECK(v.times(v.times(a, -1), -1) == a);
  CHECK(v.sub(a, a) == v.constant(0));
  CHECK(v.load(v.plus(a, 8)) == v.load(v.plus(a, 8)));
  CHECK(v.load(a) != v.load(b));
}

TEST_CASE("p - load(p - 8) is a table, in every order of writing it") {
  Values v;
  const Value ctx = argument(v, rdi);
  const Value size = v.load(v.plus(ctx, -8));
  const auto table = v.as_table(v.sub(ctx, size));
  REQUIRE(table);
  CHECK(table->offset == 0);
  // clang: 328 - size, then added to the context
  const auto again = v.as_table(v.add(v.sub(v.constant(328), size), ctx));
  REQUIRE(again);
  CHECK(again->table == table->table);
  CHECK(again->offset == 328);
  // from a pointer in front of the context
  const Value words = v.plus(ctx, -16);
  const auto third = v.as_table(v.sub(v.plus(words, 16), v.load(v.plus(words, 8))));
  REQUIRE(third);
  CHECK(third->table == table->table);
}

TEST_CASE("other differences are none") {
  Values v;
  const Value a = argument(v, rdi), b = argument(v, rsi);
  CHECK_FALSE(v.as_table(v.sub(a, v.load(v.plus(b, -8)))));
  CHECK_FALSE(v.as_table(v.add(a, v.load(v.plus(a, -8)))));
  CHECK_FALSE(v.as_table(v.sub(v.times(a, 2), v.load(v.plus(a, -8)))));
}

TEST_CASE("what is unknown stays so") {
  Values v;
  CHECK(v.add(unknown, v.constant(1)) == unknown);
  CHECK(v.load(unknown) == unknown);
  CHECK_FALSE(v.as_constant(unknown));
  CHECK_FALSE(v.as_table(unknown));
  CHECK_FALSE(v.in_frame(unknown));
  CHECK(v.in_frame(v.plus(argument(v, rsp), -24)));
}
