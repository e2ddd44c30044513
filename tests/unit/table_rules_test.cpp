// The rules of the tables: that the rows obey them, and that they catch what
// they are for.
#include <catch.h>

#include <algorithm>
#include <set>

#include "table/compat_rules.h"

using namespace ibvexp;
using rules::fault;

namespace {

template <class Table>
void check_all(const Table &table) {
  for (const auto &row : table) {
    INFO(row.name);
    CHECK(fault(row) == "");
  }
}

// A row that obeys every rule; each test spoils one column.
Answer good(Verdict verdict) {
  switch (verdict) {
    case Verdict::native:
    case Verdict::translated: return {verdict, Beyond::none, 12, 0, "ibv_x", "", ""};
    case Verdict::partial:
      return {verdict, Beyond::none, 12, ENOTSUP, "ibv_x", "", "Not all of it."};
    case Verdict::noop: return {verdict, Beyond::none, 0, 0, "", "", "A hint."};
    case Verdict::query_only: return {verdict, Beyond::none, 0, 0, "", "", "Never reported."};
    case Verdict::beyond: return {verdict, Beyond::nop, 36, ENOTSUP, "raw entry", "", "Off."};
    case Verdict::unsupported:
      return {verdict, Beyond::none, 0, ENOTSUP, "", "", "No counterpart."};
    case Verdict::sentinel: break;
  }
  return {Verdict::sentinel, Beyond::none, 0, EINVAL, "", "", "A limit."};
}

std::string_view with(Verdict verdict, void (*spoil)(Answer &)) {
  Answer a = good(verdict);
  spoil(a);
  return fault(a);
}

}  // namespace

TEST_CASE("all rows obey the rules") {
  check_all(entries);
  check_all(features);
  check_all(slots);
  check_all(options);
  check_all(beyond_switches);
}

TEST_CASE("tables are sorted") {
  const auto *entry = rules::first_misplaced(entries);
  CHECK((entry == nullptr ? "" : entry->name) == "");
  const auto *feature = rules::first_misplaced(features);
  CHECK((feature == nullptr ? "" : feature->name) == "");
}

TEST_CASE("names are unique, also across tables") {
  std::set<std::string_view> seen;
  for (const Entry &e : entries) CHECK(seen.insert(e.name).second);
  for (const Feature &f : features) {
    INFO(f.name);
    CHECK(seen.insert(f.name).second);
  }
}

TEST_CASE("rows that obey the rules have no fault") {
  for (std::size_t v = 0; v < std::size(names_of_Verdict); ++v) {
    INFO(names_of_Verdict[v]);
    CHECK(fault(good(static_cast<Verdict>(v))) == "");
  }
}

TEST_CASE("an unsupported row has a reason and no target") {
  CHECK(with(Verdict::unsupported, [](Answer &a) { a.note = ""; }) == "unsupported has a reason");
  CHECK(with(Verdict::unsupported, [](Answer &a) { a.target = "x", a.min_core = 12; }) ==
        "unsupported has no target");
  CHECK(with(Verdict::unsupported, [](Answer &a) { a.beyond = Beyond::nop; }) ==
        "can be switched on, so it is beyond");
}

TEST_CASE("what a declined switch would serve is unsupported") {
  CHECK(with(Verdict::beyond, [](Answer &a) { a.beyond = Beyond::tag_matching_dc; }) ==
        "a declined switch is unsupported");
}

TEST_CASE("other rows have a target and its first release") {
  for (const Verdict v :
       {Verdict::native, Verdict::translated, Verdict::partial, Verdict::beyond}) {
    INFO(name_of(v));
    CHECK(with(v, [](Answer &a) { a.target = "", a.min_core = 0; }) != "");
    CHECK(with(v, [](Answer &a) { a.min_core = 0; }) ==
          "a target has a first release, and only it");
  }
}

TEST_CASE("a row has an errno exactly when something is refused") {
  CHECK(with(Verdict::partial, [](Answer &a) { a.refusal = 0; }) != "");
  CHECK(with(Verdict::native, [](Answer &a) { a.refusal = ENOTSUP; }) != "");
  CHECK(with(Verdict::noop, [](Answer &a) { a.refusal = ENOTSUP; }) != "");
  CHECK(with(Verdict::query_only, [](Answer &a) { a.refusal = ENOTSUP; }) != "");
  CHECK(with(Verdict::unsupported, [](Answer &a) { a.refusal = ENOSYS; }) ==
        "refusals are ENOTSUP or EINVAL");
  const Feature refused{"X", Family::qp, "e", Kind::flag, true, good(Verdict::unsupported)};
  Feature silent = refused;
  silent.answer.refusal = 0;
  CHECK(fault(refused) == "");
  CHECK(fault(silent) == "a refusal has an errno");
}

TEST_CASE("silence needs an explanation") {
  for (const Verdict v : {Verdict::partial, Verdict::noop, Verdict::query_only, Verdict::beyond,
                          Verdict::unsupported, Verdict::sentinel}) {
    INFO(name_of(v));
    CHECK(with(v, [](Answer &a) { a.note = ""; }) != "");
  }
}

TEST_CASE("beyond names a switch that may be built") {
  CHECK(with(Verdict::beyond, [](Answer &a) { a.beyond = Beyond::none; }) ==
        "beyond names its switch");
  CHECK(with(Verdict::beyond, [](Answer &a) { a.beyond = Beyond::by_default; }) ==
        "beyond names its switch");
  CHECK(with(Verdict::beyond, [](Answer &a) { a.beyond = Beyond::peer_direct; }) ==
        "a declined switch is unsupported");
}

TEST_CASE("texts are tidy") {
  CHECK(with(Verdict::noop, [](Answer &a) { a.note = "A hint. "; }) == "stray blanks in a text");
  CHECK(with(Verdict::noop, [](Answer &a) { a.note = "two  blanks."; }) ==
        "stray blanks in a text");
  CHECK(with(Verdict::noop, [](Answer &a) { a.note = "no stop"; }) ==
        "a note is made of sentences");
}

TEST_CASE("entry points and symbols fit together") {
  const Entry e{"x",           Family::qp,      Door::symbol,
                Node::exp_1_0, Shape::positive, good(Verdict::translated)};
  CHECK(fault(e) == "");
  Entry no_node = e;
  no_node.node = Node::none;
  CHECK(fault(no_node) == "exported symbols have a version node, and only they");
  Entry absent = e;
  absent.door = Door::absent;
  CHECK(fault(absent) == "absent entry points have no error shape");
}

TEST_CASE("slots fit their entry points") {
  CHECK(fault(Slot{"s", Fill::function, "ibv_exp_create_qp", ""}) == "");
  CHECK(fault(Slot{"s", Fill::function, "ibv_exp_nothing", ""}) == "the entry point has no row");
  CHECK(fault(Slot{"s", Fill::function, "ibv_exp_rereg_mr", ""}) ==
        "the entry point is not behind a slot");
  CHECK(fault(Slot{"s", Fill::null, "", ""}) == "says why it is empty");
  for (const Entry &e : entries) {
    const bool has_slot =
        std::any_of(slots.begin(), slots.end(), [&](const Slot &s) { return s.entry == e.name; });
    INFO(e.name);
    CHECK(has_slot == (e.door == Door::slot_and_symbol));
  }
}
