#include "tool/migrate/migration_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tool/migrate/rules.h"
#include "tool/plural.h"

namespace ibvexp::migrate {

std::size_t line_of(const File &file, std::size_t offset) {
  return 1 + static_cast<std::size_t>(std::count(
                 file.text.begin(), file.text.begin() + static_cast<long>(offset), '\n'));
}

namespace {

using Json = nlohmann::ordered_json;

Json changes_of(const std::string &path, const File &file) {
  Json changes = Json::array(), left = Json::array(), lost = Json::array();
  for (const Edit &edit : file.edits)
    if (edit.kind != Kind::layout)
      changes.push_back({{"id", id_of(edit.kind)},
                         {"line", line_of(file, edit.offset)},
                         {"legacy", edit.legacy},
                         {"row", row_of(edit.legacy)},
                         {"from", file.text.substr(edit.offset, edit.length)},
                         {"to", edit.text}});
  for (const Finding &finding : file.findings)
    (finding.kind == Kind::lost ? lost : left)
        .push_back({{"id", id_of(finding.kind)},
                    {"line", line_of(file, finding.offset)},
                    {"legacy", finding.legacy},
                    {"row", row_of(finding.legacy)},
                    {"advice", advice(finding)}});
  return {{"path", path}, {"changes", changes}, {"left", left}, {"lost", lost}};
}

std::size_t build_lines(const Files &files) {
  std::size_t sum = 0;
  for (const auto &[path, file] : files) {
    std::set<std::size_t> lines;
    for (const Edit &edit : file.edits) lines.insert(line_of(file, edit.offset));
    sum += lines.size();
  }
  return sum;
}

}  // namespace

std::size_t left_in(const Files &build_files) {
  std::size_t sum = 0;
  for (const auto &[path, file] : build_files) sum += file.findings.size();
  return sum;
}

double Count::percent() const {
  return uses == 0 ? 100 : 100.0 * static_cast<double>(converted()) / static_cast<double>(uses);
}

Count count(const Files &files) {
  Count sum;
  for (const auto &[path, file] : files) {
    sum.uses += file.places().size();
    sum.not_compiled += file.not_compiled();
    sum.left += file.left_places();
    sum.findings += file.left();
    sum.lost += file.findings.size() - file.left();
  }
  return sum;
}

std::string summary(const Outcome &outcome) {
  std::string out;
  for (const Files *files : {&outcome.files, &outcome.build_files})
    for (const auto &[path, file] : *files)
      for (const Finding &finding : file.findings)
        out += fmt::format("{}:{}: {} {}: {}\n", path, line_of(file, finding.offset),
                           id_of(finding.kind), finding.legacy, advice(finding));
  for (const std::string &failure : outcome.failing) out += failure + "\n";
  const Count sum = count(outcome.files);
  if (sum.uses + sum.not_compiled == 0) out += "no experimental verbs in these sources\n";
  else if (sum.uses != 0)
    out += fmt::format("{} of {} converted ({:.1f} %), {} left to do by hand\n", sum.converted(),
                       tool::plural(sum.uses, "use"), sum.percent(), sum.left);
  if (sum.lost != 0)
    out += fmt::format("{} removed with something that the program asked for ({})\n", sum.lost,
                       id_of(Kind::lost));
  if (sum.not_compiled != 0)
    out += fmt::format("{} {} not compiled with these flags\n",
                       sum.uses == 0 ? tool::plural(sum.not_compiled, "use")
                                     : fmt::format("{} more", sum.not_compiled),
                       tool::noun(sum.not_compiled, "is", "are"));
  const std::size_t lines = build_lines(outcome.build_files), left = left_in(outcome.build_files);
  if (lines + left != 0)
    out +=
        fmt::format("build files: {} of {} converted\n", lines, tool::plural(lines + left, "line"));
  if (outcome.needs_mlx5) out += "link the result with -lmlx5 -libverbs\n";
  if (sum.findings == 0 && outcome.failing.empty())
    out += "compiles without the experimental header\n";
  return out;
}

std::string as_json(const Outcome &outcome) {
  const Count sum = count(outcome.files);
  Json out{{"schema", 1},
           {"uses", sum.uses},
           {"converted", sum.converted()},
           {"left", sum.left},
           {"percent", sum.percent()},
           {"not_compiled", sum.not_compiled},
           {"whole", sum.findings == 0 && outcome.failing.empty() && outcome.unread.empty()},
           {"needs_mlx5", outcome.needs_mlx5},
           {"files", Json::array()},
           {"build_files", Json::array()},
           {"unread", outcome.unread},
           {"failing", outcome.failing}};
  for (const auto &[path, file] : outcome.files) {
    Json entry = changes_of(path, file);
    entry["uses"] = file.places().size();
    entry["converted"] = file.places().size() - file.left_places();
    out["files"].push_back(std::move(entry));
  }
  for (const auto &[path, file] : outcome.build_files)
    out["build_files"].push_back(changes_of(path, file));
  return out.dump(2) + "\n";
}

}  // namespace ibvexp::migrate
