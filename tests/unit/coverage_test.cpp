// Nothing of the legacy API is without a row, and no row speaks of something
// that does not exist.
#include <catch.h>

#include <algorithm>
#include <map>
#include <set>

#include "../support/refused.h"
#include "facts.h"
#include "table/compat.h"
#include "table/guide.h"

using namespace ibvexp;

namespace {

const std::string facts_dir = FACTS_DIR;

std::vector<facts::Fact> facts_of(const std::string &name) {
  return facts::read(facts_dir + "/" + name + ".txt");
}

std::set<std::string> names(const std::vector<facts::Fact> &facts) {
  std::set<std::string> out;
  for (const auto &fact : facts) out.insert(fact.name);
  return out;
}

// Migration row -> answers of the table rows that carry its id.
std::multimap<std::string, const Answer *> answers_by_migration_row() {
  std::multimap<std::string, const Answer *> out;
  const auto add = [&](const Answer &a) {
    for_each_word(a.rows, ' ', [&](std::string_view id) { out.emplace(id, &a); });
  };
  for (const Entry &e : entries) add(e.answer);
  for (const Feature &f : features) add(f.answer);
  return out;
}

}  // namespace

TEST_CASE("every migration row is carried by a table row") {
  const auto covered = answers_by_migration_row();
  const auto rows = facts_of("migration_rows");
  REQUIRE(rows.size() == 294);
  for (const auto &row : rows) {
    INFO(row.name);
    CHECK(covered.count(row.name) > 0);
  }
}

TEST_CASE("the guide's rows and verdicts are listed in its order") {
  const auto facts = facts_of("migration_verdicts");
  REQUIRE(facts.size() == guide_rows.size());
  // In the order of GuideVerdict.
  constexpr const char *words[] = {"supported", "replaced", "default", "deprecated",
                                   "not-supported"};
  for (std::size_t i = 0; i < facts.size(); ++i) {
    const auto verdict = static_cast<std::size_t>(guide_rows[i].verdict);
    CHECK(facts[i].name == guide_rows[i].id);
    INFO(facts[i].name);
    CHECK(facts[i].detail == words[verdict]);
  }
}

TEST_CASE("each row of the guide is of one of its features") {
  for (const GuideRow &row : guide_rows) {
    INFO(row.id);
    CHECK(std::count_if(guide_features.begin(), guide_features.end(),
                        [&](const GuideFeature &f) { return f.prefix == row.prefix(); }) == 1);
  }
}

TEST_CASE("table rows name only migration rows that exist") {
  const auto known = names(facts_of("migration_rows"));
  for (const auto &[id, answer] : answers_by_migration_row()) {
    INFO(id << " in: " << answer->note);
    CHECK(known.count(id) == 1);
  }
}

TEST_CASE("every route beyond the guide is accounted for") {
  const auto covered = answers_by_migration_row();
  int routes = 0;
  for (const auto &row : facts_of("migration_rows")) {
    if (row.detail != "beyond") continue;
    ++routes;
    const auto [first, last] = covered.equal_range(row.name);
    INFO(row.name);
    CHECK(std::all_of(first, last, [](const auto &r) { return r.second->beyond != Beyond::none; }));
  }
  CHECK(routes == 89);
}

TEST_CASE("every switch is used by a row") {
  std::set<Beyond> used;
  for (const Entry &e : entries) used.insert(e.answer.beyond);
  for (const Feature &f : features) used.insert(f.answer.beyond);
  for (std::size_t i = 0; i < beyond_switches.size(); ++i) {
    INFO(beyond_switches[i].name);
    CHECK(used.count(static_cast<Beyond>(i + 2)) == 1);
  }
}

TEST_CASE("entry points and lost symbols are exactly the rows of entries.def") {
  auto legacy = names(facts_of("entry_points"));
  legacy.merge(names(facts_of("lost_symbols")));
  std::set<std::string> ours;
  for (const Entry &e : entries) ours.emplace(e.name);
  CHECK(ours == legacy);
}

TEST_CASE("slots and their rows agree in name, order and offset") {
  const auto legacy = facts_of("slots");
  REQUIRE(slots.size() == legacy.size());
  for (std::size_t i = 0; i < legacy.size(); ++i) {
    CHECK(slots[i].name == legacy[i].name);
    CHECK(std::to_string(offset_of(slots[i])) == legacy[i].detail);
  }
}

TEST_CASE("every constant has a row") {
  for (const auto &constant : facts_of("constants")) {
    INFO(constant.name);
    const Feature *f = find_feature(constant.name);
    REQUIRE(f != nullptr);
    const bool named_enum = constant.detail != "macro" && !constant.detail.starts_with("anon:");
    if (named_enum) CHECK(f->owner == constant.detail);
  }
}

TEST_CASE("every experimental name of the last headers has a row") {
  for (const auto &constant : facts_of("header_names")) {
    INFO(constant.name);
    CHECK(find_feature(constant.name) != nullptr);
  }
}

TEST_CASE("enumerator rows are constants of the specification or of the last headers") {
  auto known = names(facts_of("constants"));
  known.merge(names(facts_of("header_names")));
  for (const Feature &f : features) {
    if (!f.enumerator) continue;
    INFO(f.name);
    CHECK(known.count(std::string(f.name)) == 1);
  }
}

TEST_CASE("the tables refuse what the specification refuses, and nothing else") {
  for (const refused::Call &call : refused::calls) {
    INFO(call.name);
    const auto entry = std::find_if(std::begin(entries), std::end(entries),
                                    [&](const Entry &e) { return e.name == call.name; });
    REQUIRE(entry != std::end(entries));
    CHECK(effective(entry->answer).verdict == Verdict::unsupported);
    CHECK(effective(entry->answer).refusal == ENOTSUP);
    CHECK(entry->shape == call.shape);
  }
  for (const Entry &e : entries) {
    INFO(e.name);
    if (e.door != Door::absent && effective(e.answer).verdict == Verdict::unsupported)
      CHECK(refused::find_call(e.name) != nullptr);
  }
  for (const refused::Value &value : refused::values) {
    INFO(value.name);
    const auto feature = std::find_if(std::begin(features), std::end(features),
                                      [&](const Feature &f) { return f.name == value.name; });
    REQUIRE(feature != std::end(features));
    CHECK(feature->owner == value.owner);
    CHECK(effective(feature->answer).verdict == Verdict::unsupported);
    CHECK(effective(feature->answer).refusal == ENOTSUP);
  }
  // Rows of usages and members have no constant of the API to go by.
  for (const Feature &f : features) {
    INFO(f.name);
    if (f.enumerator && effective(f.answer).verdict == Verdict::unsupported &&
        effective(f.answer).refusal != 0)
      CHECK(refused::find_value(f.name) != nullptr);
  }
}
