#include "tool/verify.h"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>

namespace ibvexp::tool::verify {

namespace {

std::vector<std::string> split(const std::string &list, char separator) {
  std::vector<std::string> out;
  std::istringstream in(list);
  for (std::string word; std::getline(in, word, separator);)
    if (!word.empty()) out.push_back(word);
  return out;
}

std::string decoded(std::string_view text) {
  static constexpr std::pair<std::string_view, char> entities[] = {
      {"&lt;", '<'}, {"&gt;", '>'}, {"&amp;", '&'}, {"&quot;", '"'}, {"&apos;", '\''}};
  std::string out;
  while (!text.empty()) {
    const auto *entity = std::find_if(std::begin(entities), std::end(entities),
                                      [&](const auto &e) { return text.starts_with(e.first); });
    if (entity == std::end(entities)) {
      out += text.front();
      text.remove_prefix(1);
    } else {
      out += entity->second;
      text.remove_prefix(entity->first.size());
    }
  }
  return out;
}

std::string attribute(std::string_view tag, std::string_view name) {
  const std::string start = fmt::format(" {}=\"", name);
  const std::size_t at = tag.find(start);
  if (at == tag.npos) return "";
  const std::size_t end = tag.find('"', at + start.size());
  return decoded(tag.substr(at + start.size(), end - at - start.size()));
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

// The text between a tag and the next.
std::string content(std::string_view xml, std::size_t tag) {
  const std::size_t start = xml.find('>', tag);
  if (start == xml.npos) return "";
  const std::size_t end = xml.find('<', start);
  return trimmed(decoded(xml.substr(start + 1, end - start - 1)));
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
  std::vector<Check> out;
  for (std::size_t at = 0; (at = xml.find('<', at)) != xml.npos; ++at) {
    const std::string_view tag = xml.substr(at, xml.find('>', at) - at);
    if (tag.starts_with("<TestCase ")) {
      Check check;
      check.file = file;
      // What is not heard of again did not return.
      check.outcome = Outcome::failed;
      check.where = "ended the process";
      read_name(attribute(tag, "name"), check);
      out.push_back(std::move(check));
    } else if (out.empty()) {
      continue;
    } else if (tag.starts_with("<Expression ") && attribute(tag, "success") == "false") {
      Check &check = out.back();
      if (check.where != "ended the process") continue;  // the first one counts
      const std::string source = attribute(tag, "filename");
      const std::size_t original = xml.find("<Original", at);
      check.where = fmt::format("{}:{}: {}", source.substr(source.rfind('/') + 1),
                                attribute(tag, "line"), content(xml, original));
    } else if (tag.starts_with("<OverallResult ")) {
      Check &check = out.back();
      const bool passed = attribute(tag, "success") == "true";
      check.outcome = passed ? Outcome::passed : Outcome::failed;
      if (passed) check.where.clear();
      else if (check.where == "ended the process") check.where = "an unexpected exception";
    }
  }
  return out;
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
