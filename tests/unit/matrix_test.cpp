// The generated matrix shows what the tables say.
#include "tool/matrix.h"

#include <catch.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "table/compat.h"
#include "table/guide.h"

using namespace ibvexp;

namespace {

bool has(const std::string &text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// Column separators of a table line; escaped bars are text.
int columns(const std::string &line) {
  int n = 0;
  for (std::size_t i = 0; i < line.size(); ++i)
    if (line[i] == '|' && (i == 0 || line[i - 1] != '\\')) ++n;
  return n;
}

}  // namespace

TEST_CASE("every row, switch, option and slot appears") {
  const std::string text = tool::matrix_markdown();
  const auto code = [](std::string_view name) { return "`" + std::string(name) + "`"; };
  for (const Entry &e : entries) CHECK(has(text, code(e.name)));
  for (const Feature &f : features) {
    INFO(f.name);
    CHECK(has(text, code(f.name)));
  }
  for (const BeyondSwitch &s : beyond_switches) CHECK(has(text, code(s.name)));
  for (const Option &o : options) CHECK(has(text, code(o.name)));
  for (const Slot &s : slots) CHECK(has(text, code(s.name)));
}

TEST_CASE("migration rows are shown") {
  const std::string text = tool::matrix_markdown();
  for (const Feature &f : features)
    for_each_word(f.answer.rows, ' ', [&](std::string_view id) {
      INFO(id);
      CHECK(has(text, "`" + std::string(id) + "`"));
    });
}

TEST_CASE("each row of the guide leads to the matrix") {
  const std::string guide = tool::guide_markdown(), matrix = tool::matrix_markdown();
  for (const GuideRow &row : guide_rows) {
    INFO(row.id);
    const std::size_t at = guide.find("| `" + std::string(row.id) + "` |");
    REQUIRE(at != std::string::npos);
    const std::string cells = guide.substr(at, guide.find('\n', at) - at);
    CHECK(has(cells, "](../compat-matrix.md#"));
    CHECK(has(matrix, "`" + std::string(row.id) + "`"));
  }
}

TEST_CASE("tables are rectangular") {
  std::istringstream lines(tool::matrix_markdown());
  int width = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.front() != '|') {
      width = 0;
      continue;
    }
    if (width == 0) width = columns(line);
    INFO(line);
    CHECK(columns(line) == width);
  }
}

TEST_CASE("JSON holds every row with its columns") {
  const auto json = nlohmann::json::parse(tool::matrix_json());
  std::size_t entry_rows = 0, feature_rows = 0;
  for (const auto &family : json["families"]) {
    entry_rows += family["entries"].size();
    feature_rows += family["features"].size();
    for (const auto &row : family["entries"]) {
      const Entry *e = find_entry(row["name"].get<std::string>());
      REQUIRE(e != nullptr);
      CHECK(row["verdict"] == std::string(name_of(e->answer.verdict)));
      CHECK(row["error_shape"] == std::string(name_of(e->shape)));
    }
  }
  CHECK(entry_rows == entries.size());
  CHECK(feature_rows == features.size());
  CHECK(json["counts"]["rows"] == entries.size() + features.size());
  CHECK(json["slots"].size() == slots.size());
  CHECK(json["switches"].size() == beyond_switches.size());
}
