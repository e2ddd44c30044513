// What `ibvexp verify` makes of results.
#include <catch.h>

#include <sstream>

#include "tool/verify.h"

using namespace ibvexp::tool::verify;

namespace {

Check check(const char *name, std::vector<std::string> rows, Outcome outcome) {
  return {"file", name, std::move(rows), outcome, ""};
}

}  // namespace

TEST_CASE("results are read, and what ended the process is a failure") {
  const auto checks = read_results(R"(<?xml version="1.0"?>
<Catch name="x">
  <Group name="x">
    <TestCase name="one &lt;works&gt; [row:a] [row:b]" tags="[#f]" filename="f.cpp" line="1">
      <OverallResult success="true"/>
    </TestCase>
    <TestCase name="another fails [rows:family=dc]" filename="f.cpp" line="2">
      <Section name="here">
        <Expression success="false" type="CHECK" filename="../tests/e2e/f_test.cpp" line="7">
          <Original>
            a == b
          </Original>
          <Expanded>
            0xfe80000000000000 == 1
          </Expanded>
        </Expression>
        <Expression success="false" type="CHECK" filename="f_test.cpp" line="9">
          <Original>later</Original>
        </Expression>
      </Section>
      <OverallResult success="false"/>
    </TestCase>
    <TestCase name="a third crashes [row:a]" filename="f.cpp" line="3">
)",
                                   "f");
  REQUIRE(checks.size() == 3);
  CHECK(checks[0].name == "one <works>");
  CHECK(checks[0].rows == std::vector<std::string>{"a", "b"});
  CHECK(checks[0].outcome == Outcome::passed);
  CHECK(checks[0].where.empty());
  CHECK(checks[1].name == "another fails");
  CHECK(checks[1].rows.empty());
  CHECK(checks[1].outcome == Outcome::failed);
  // The expression and nothing of its values, which belong to the site.
  CHECK(checks[1].where == "f_test.cpp:7: a == b");
  CHECK(checks[2].outcome == Outcome::failed);
  CHECK(checks[2].where == "ended the process");
  CHECK(read_results("", "f").empty());
}

TEST_CASE("the words for rows fit their number") {
  CHECK(in_words(Judgement::differs, 1) == "row differs");
  CHECK(in_words(Judgement::differs, 0) == "rows differ");
  CHECK(in_words(Judgement::as_expected, 1) == "row as on the software HCA");
  CHECK(in_words(Judgement::absent, 2) == "rows not there");
}

TEST_CASE("a row is judged by the checks that name it") {
  const std::vector<Check> expected = {check("one", {}, Outcome::passed),
                                       check("two", {}, Outcome::passed),
                                       check("three", {}, Outcome::failed)};
  const std::vector<Check> found = {check("one", {"a", "c"}, Outcome::passed),
                                    check("two", {"a", "b", "c"}, Outcome::failed),
                                    check("three", {"d"}, Outcome::failed)};
  SECTION("one that fails outweighs one that passes") {
    const auto rows = judge(expected, found, {});
    CHECK(rows.at("a").judgement == Judgement::differs);
    REQUIRE(rows.at("a").checks.size() == 1);
    CHECK(rows.at("a").checks[0]->name == "two");
    // What the software HCA fails at says nothing.
    CHECK(rows.count("d") == 0);
  }
  SECTION("what needs something that is not there says nothing about the rest") {
    const auto rows = judge(expected, found, {{"b", false}, {"a", true}});
    CHECK(rows.at("a").judgement == Judgement::as_expected);
    CHECK(rows.at("b").judgement == Judgement::absent);
  }
  SECTION("of what is not there a check may pass") {
    const auto rows = judge(expected, found, {{"c", false}});
    CHECK(rows.at("c").judgement == Judgement::absent);
  }
}

TEST_CASE("of the kernel's release the report has what every site may have") {
  CHECK(kernel_series("6.18.44-host7.example") == "6.18");
  CHECK(kernel_series("6.1.0-21-amd64") == "6.1");
  CHECK(kernel_series("5.14-example") == "5.14");
  CHECK(kernel_series("7") == "7");
  CHECK(kernel_series("7.x") == "7");
  CHECK(kernel_series("host7").empty());
  CHECK(kernel_series("").empty());
}

TEST_CASE("the distribution is named as it names itself") {
  const auto of = [](const char *text) {
    std::istringstream in(text);
    return distribution(in);
  };
  CHECK(of("NAME=\"A B\"\nVERSION_ID=\"8.9\"\nID=\"rhel\"\nID_LIKE=fedora\n") == "rhel 8.9");
  CHECK(of("ID=arch\nHOME_URL='https://x'\n") == "arch");
  CHECK(of("VERSION_ID=12\n").empty());
}
