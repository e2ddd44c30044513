// Look-up in the tables and the answer that follows from a row.
#include "table/compat.h"

#include <catch.h>

#include <string>
#include <vector>

#include "table/feature_rows.h"

using namespace ibvexp;

namespace {

constexpr Answer answer(Verdict verdict, Beyond beyond = Beyond::none, int refusal = 0) {
  return {verdict, beyond, 0, refusal, "target", "", ""};
}

}  // namespace

TEST_CASE("rows are found by id and by name") {
  CHECK(row(EntryId::ibv_exp_create_qp).name == "ibv_exp_create_qp");
  CHECK(row(FeatureId::IBV_EXP_CQ_TIMESTAMP).name == "IBV_EXP_CQ_TIMESTAMP");
  CHECK(row(FeatureId::dc_post_send_addr).name == "ibv_exp_send_wr.dc");
  CHECK(find_entry("ibv_exp_poll_cq") == &row(EntryId::ibv_exp_poll_cq));
  CHECK(find_feature("IBV_EXP_WR_NOP") == &row(FeatureId::IBV_EXP_WR_NOP));
  CHECK(find_slot("sz") == &slots.back());
  CHECK(find_option("IBVEXP_STRICT") != nullptr);
  CHECK(find_switch("masked_atomics") == &info(Beyond::masked_atomics));
  CHECK(find_entry("ibv_exp_nothing") == nullptr);
  CHECK(find_feature("") == nullptr);
}

TEST_CASE("a feature's row at run time is that of the table") {
  for (std::size_t i = 0; i < features.size(); ++i) {
    const Feature got = feature_row(static_cast<FeatureId>(i)), &want = features[i];
    INFO(want.name);
    CHECK(got.name == want.name);
    CHECK(got.family == want.family);
    CHECK(got.owner == want.owner);
    CHECK(got.kind == want.kind);
    CHECK(got.enumerator == want.enumerator);
    CHECK(got.answer.verdict == want.answer.verdict);
    CHECK(got.answer.beyond == want.answer.beyond);
    CHECK(got.answer.min_core == want.answer.min_core);
    CHECK(got.answer.refusal == want.answer.refusal);
    CHECK(got.answer.target == want.answer.target);
    CHECK(got.answer.rows == want.answer.rows);
    CHECK(got.answer.note == want.answer.note);
  }
}

TEST_CASE("families hold every row exactly once") {
  std::size_t entry_rows = 0, feature_rows = 0;
  for (std::size_t f = 0; f < families.size(); ++f) {
    const auto family = static_cast<Family>(f);
    entry_rows += entries_of(family).size();
    feature_rows += features_of(family).size();
    CHECK(entries_of(family).size() + features_of(family).size() > 0);
  }
  CHECK(entry_rows == entries.size());
  CHECK(feature_rows == features.size());
}

TEST_CASE("words of a list") {
  const auto split = [](std::string_view list, char separator) {
    std::vector<std::string> out;
    for_each_word(list, separator, [&](std::string_view w) { out.emplace_back(w); });
    return out;
  };
  CHECK(split("", ' ').empty());
  CHECK(split("a", ' ') == std::vector<std::string>{"a"});
  CHECK(split("a.b c.d", ' ') == std::vector<std::string>{"a.b", "c.d"});
  CHECK(split(",x,,y,", ',') == std::vector<std::string>{"x", "y"});
}

TEST_CASE("a row answers as its verdict says") {
  CHECK(effective(answer(Verdict::translated)).verdict == Verdict::translated);
  const Effective partial = effective(answer(Verdict::partial, Beyond::none, ENOTSUP));
  CHECK(partial.verdict == Verdict::partial);
  CHECK(partial.refusal == ENOTSUP);
}

TEST_CASE("a bit without a source is never reported") {
  Answer a = answer(Verdict::query_only);
  a.target = "";
  CHECK_FALSE(reportable(a));
}

TEST_CASE("a switch counts only when it is done") {
  const Answer request = answer(Verdict::beyond, Beyond::peer_direct, ENOTSUP);
  const Answer bit = answer(Verdict::beyond, Beyond::peer_direct);
  // Declined, so naming it in IBVEXP_BEYOND changes nothing.
  CHECK(effective(request, true).verdict == Verdict::unsupported);
  CHECK(effective(bit, true).verdict == Verdict::query_only);
  CHECK_FALSE(reportable(bit, true));
}

TEST_CASE("switches that are done change the answer only when switched on") {
  for (const Feature &f : features) {
    const Answer &a = f.answer;
    if (a.verdict != Verdict::beyond) continue;
    INFO(f.name);
    CHECK(effective(a, false).verdict != Verdict::translated);
    CHECK(effective(a, true).refusal == 0);
  }
}

TEST_CASE("enumerators have their names") {
  CHECK(name_of(Verdict::query_only) == "query_only");
  CHECK(name_of(Shape::null_errno) == "null_errno");
  CHECK(name_of(Family::dc) == "dc");
  CHECK(name_of(Beyond::none) == "none");
  CHECK(name_of(Beyond::by_default) == "by_default");
  CHECK(name_of(Beyond::nop) == "nop");
}

TEST_CASE("the table has the legacy size and ends in its size word") {
  CHECK(slots.size() * sizeof(void *) == 664);
  CHECK(offset_of(slots.front()) == 0);
  CHECK(offset_of(slots.back()) == 656);
}
