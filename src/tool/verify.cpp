#include "tool/verify.h"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <pugixml.hpp>
#include <set>
#include <sstream>
#include <stdexcept>

#include "tool/plural.h"

namespace ibvexp::tool::verify {

namespace {

std::vector<std::string> split(const std::string &list, char separator) {
  std::vector<std::string> out;
  std::istringstream in(list);
  for (std::string word; std::getline(in, word, separator);)
    if (!word.empty()) out.push_back(word);
  return out;
}

std::string trimmed(std::string text) {
  const auto blank = [](char c) { return c == ' ' || c == '\n' || c == '\t'; };
  while (!text.empty() && blank(text.back())) text.pop_back();
  text.erase(0, static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), blank) -
                                         text.begin()));
  return text;
}

// "a key is filled again [row:umr_modified]"; also "[rows:...]", which is about
// many and names none.
void read_name(const std::string &full, Check &out) {
  std::size_t from = 0;
  for (std::size_t at; (at = full.find("[row", from)) != full.npos;) {
    out.name += full.substr(from, at - from);
    const std::size_t end = full.find(']', at);
    if (end == full.npos) return;
    if (full.compare(at, 5, "[row:") == 0) out.rows.push_back(full.substr(at + 5, end - at - 5));
    from = end + 1;
  }
  out.name = trimmed(out.name + full.substr(from));
}

// Where a check failed first: its sections in the order in which they ran.
std::string first_failure(const pugi::xml_node &check) {
  const pugi::xml_node failed = check.find_node([](const pugi::xml_node &node) {
    return std::string_view(node.name()) == "Expression" && !node.attribute("success").as_bool();
  });
  if (!failed) return "";
  const std::string source = failed.attribute("filename").value();
  return fmt::format("{}:{}: {}", source.substr(source.rfind('/') + 1),
                     failed.attribute("line").value(), trimmed(failed.child_value("Original")));
}

}  // namespace

std::vector<CheckFile> read_manifest(const std::filesystem::path &file) {
  std::ifstream in(file);
  if (!in) throw std::runtime_error(fmt::format("{} cannot be read", file.string()));
  std::vector<CheckFile> out;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    CheckFile f;
    std::string links;
    if (!(words >> f.name >> links)) continue;
    f.links = split(links, ',');
    words >> f.beyond;
    out.push_back(std::move(f));
  }
  return out;
}

std::vector<Check> read_results(std::string_view xml, const std::string &file) {
  pugi::xml_document document;
  // Of a document that ends in the middle there is what was read until then.
  document.load_buffer(xml.data(), xml.size());
  std::vector<Check> out;
  for (const auto &found : document.select_nodes("//TestCase")) {
    const pugi::xml_node node = found.node();
    Check check;
    check.file = file;
    read_name(node.attribute("name").value(), check);
    const pugi::xml_node result = node.child("OverallResult");
    if (result && result.attribute("success").as_bool()) {
      check.outcome = Outcome::passed;
    } else {
      check.outcome = Outcome::failed;
      check.where = first_failure(node);
      if (check.where.empty())
        check.where = result ? "an unexpected exception" : "ended the process";
    }
    out.push_back(std::move(check));
  }
  return out;
}

std::string kernel_series(std::string_view release) {
  const auto number = [&](std::size_t from) {
    return std::min(release.find_first_not_of("0123456789", from), release.size());
  };
  const std::size_t major = number(0);
  if (major == 0) return {};
  if (major == release.size() || release[major] != '.')
    return std::string(release.substr(0, major));
  const std::size_t minor = number(major + 1);
  return std::string(release.substr(0, minor == major + 1 ? major : minor));
}

std::string distribution(std::istream &os_release) {
  std::string id, version;
  for (std::string line; std::getline(os_release, line);) {
    std::string *const value = line.starts_with("ID=")           ? &id
                               : line.starts_with("VERSION_ID=") ? &version
                                                                 : nullptr;
    if (value == nullptr) continue;
    *value = line.substr(line.find('=') + 1);
    std::erase(*value, '"');
    std::erase(*value, '\'');
  }
  return id.empty() || version.empty() ? id : id + " " + version;
}

std::string in_words(Judgement j, std::size_t rows) {
  const std::string_view words = j == Judgement::differs && rows != 1
                                     ? "differ"
                                     : judgement_names[static_cast<std::size_t>(j)];
  return fmt::format("{} {}", noun(rows, "row"), words);
}

std::map<std::string, RowResult> judge(const std::vector<Check> &expected,
                                       const std::vector<Check> &found,
                                       const std::map<std::string, bool> &there) {
  std::set<std::pair<std::string_view, std::string_view>> passes;
  for (const Check &c : expected)
    if (c.outcome == Outcome::passed) passes.insert({c.file, c.name});

  const auto missing = [&](const std::string &row) {
    const auto it = there.find(row);
    return it != there.end() && !it->second;
  };
  // Files are about one subject each: where most of its rows are not there, it is not.
  std::map<std::string_view, int> balance;
  for (const Check &c : found)
    for (const std::string &row : c.rows)
      if (const auto it = there.find(row); it != there.end())
        balance[c.file] += it->second ? -1 : 1;

  std::map<std::string, RowResult> out;
  for (const Check &c : found) {
    if (!passes.contains({c.file, c.name})) continue;
    // A check that needs something which is not there says nothing about its others.
    const bool absent = balance[c.file] > 0 || std::any_of(c.rows.begin(), c.rows.end(), missing);
    const Judgement judgement = c.outcome == Outcome::passed ? Judgement::as_expected
                                : absent                     ? Judgement::absent
                                                             : Judgement::differs;
    for (const std::string &row : c.rows) {
      const auto [it, first] = out.try_emplace(row);
      RowResult &r = it->second;
      // Of what is not there, refusals may well be as expected.
      const auto weight = [gone = missing(row)](Judgement j) {
        return j == Judgement::differs ? 3 : j == Judgement::as_expected ? 1 : gone ? 2 : 0;
      };
      if (first || weight(judgement) > weight(r.judgement)) r = {judgement, {}};
      if (judgement == r.judgement) r.checks.push_back(&c);
    }
  }
  return out;
}

}  // namespace ibvexp::tool::verify
