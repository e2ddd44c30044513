// The report as a page of its own: the sum, then a table for each file.
#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "tool/migrate/migration_report.h"
#include "tool/migrate/rules.h"
#include "tool/plural.h"

namespace ibvexp::migrate {

namespace {

constexpr auto style =
    "body{font:15px/1.4 sans-serif;margin:2em auto;max-width:70em;padding:0 1em}"
    "table{border-collapse:collapse;width:100%;margin:.5em 0 2em}"
    "th,td{text-align:left;padding:.2em .6em;border-bottom:1px solid #8884;vertical-align:top}"
    "code{font-size:13px;white-space:pre-wrap}.left td{background:#f802}"
    "@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}}";

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') out += "&amp;";
    else if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else if (c == '"') out += "&quot;";
    else out += c;
  }
  return out;
}

// Rows in the order of the file: changes, and what is left.
std::multimap<std::size_t, std::string> rows(const File &file) {
  std::multimap<std::size_t, std::string> out;
  for (const Edit &e : file.edits)
    if (e.kind != Kind::layout)
      out.emplace(e.offset,
                  fmt::format("<tr><td>{}<td>{}<td><code>{}</code><td><code>{}</code></tr>\n",
                              line_of(file, e.offset), id_of(e.kind),
                              escaped(file.text.substr(e.offset, e.length)), escaped(e.text)));
  for (const Finding &f : file.findings)
    out.emplace(f.offset, fmt::format("<tr class=left><td>{}<td>{}<td><code>{}</code><td>{}</tr>\n",
                                      line_of(file, f.offset), id_of(f.kind), escaped(f.legacy),
                                      escaped(advice(f))));
  return out;
}

std::string table(const std::string &path, const File &file, const std::string &about) {
  const auto all = rows(file);
  if (all.empty()) return "";
  std::string out = fmt::format(
      "<h2>{}</h2>\n<p>{}</p>\n<table><tr><th>Line<th>Id<th>Before<th>After, or advice</tr>\n",
      escaped(path), about);
  for (const auto &[offset, row] : all) out += row;
  return out + "</table>\n";
}

}  // namespace

std::string as_html(const Outcome &outcome) {
  const Count sum = count(outcome.files);
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=en><meta charset=utf-8><title>ibvexp migrate</title>"
      "<style>{}</style>\n<h1>ibvexp migrate</h1>\n<p>{} of {} converted ({:.1f}&nbsp;%), {} "
      "left to do by hand, {} more not compiled with these flags.</p>\n",
      style, sum.converted(), tool::plural(sum.uses, "use"), sum.percent(), sum.left,
      sum.not_compiled);
  for (const auto *list : {&outcome.unread, &outcome.failing})
    for (const std::string &error : *list) out += "<p><code>" + escaped(error) + "</code></p>\n";
  for (const auto &[path, file] : outcome.files)
    out += table(path, file,
                 fmt::format("{} of {}", file.places().size() - file.left_places(),
                             tool::plural(file.places().size(), "use")));
  for (const auto &[path, file] : outcome.build_files) out += table(path, file, "build file");
  return out + "</html>\n";
}

}  // namespace ibvexp::migrate
