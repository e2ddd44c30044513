#include "tool/migrate/migration_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tool/migrate/rules.h"

namespace ibvexp::migrate {

std::size_t line_of(const File &file, std::size_t offset) {
  return 1 + static_cast<std::size_t>(std::count(
                 file.text.begin(), file.text.begin() + static_cast<long>(offset), '\n'));
}

double Count::percent() const {
  return uses == 0 ? 100 : 100.0 * static_cast<double>(converted) / static_cast<double>(uses);
}

Count count(const Files &files) {
  Count sum;
  for (const auto &[path, file] : files) {
    sum.uses += file.uses.size() - file.not_compiled();
    sum.not_compiled += file.not_compiled();
    sum.converted += file.converted();
    sum.findings += file.left();
    sum.lost += file.findings.size() - file.left();
  }
  return sum;
}

std::string summary(const Outcome &outcome) {
  std::string out;
  for (const auto &[path, file] : outcome.files)
    for (const Finding &finding : file.findings)
      out += fmt::format("{}:{}: {} {}: {}\n", path, line_of(file, finding.offset),
                         id_of(finding.kind), finding.legacy, advice(finding));
  for (const std::string &failure : outcome.failing) out += failure + "\n";
  const Count sum = count(outcome.files);
  out += fmt::format("{} of {} uses converted ({:.1f} %), {} left to do by hand\n", sum.converted,
                     sum.uses, sum.percent(), sum.findings - sum.not_compiled);
  if (sum.lost != 0)
    out += fmt::format("{} removed with something that the program asked for ({})\n", sum.lost,
                       id_of(Kind::lost));
  if (sum.not_compiled != 0)
    out += fmt::format("{} more are not compiled with these flags\n", sum.not_compiled);
  if (sum.findings == 0 && outcome.failing.empty())
    out += "compiles without the experimental header\n";
  return out;
}

std::string as_json(const Outcome &outcome) {
  using Json = nlohmann::ordered_json;
  const Count sum = count(outcome.files);
  Json out{{"schema", 1},
           {"uses", sum.uses},
           {"converted", sum.converted},
           {"percent", sum.percent()},
           {"not_compiled", sum.not_compiled},
           {"whole", sum.findings == 0 && outcome.failing.empty() && outcome.unread.empty()},
           {"files", Json::array()},
           {"unread", outcome.unread},
           {"failing", outcome.failing}};
  for (const auto &[path, file] : outcome.files) {
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
    out["files"].push_back({{"path", path},
                            {"uses", file.uses.size() - file.not_compiled()},
                            {"converted", file.converted()},
                            {"changes", changes},
                            {"left", left},
                            {"lost", lost}});
  }
  return out.dump(2) + "\n";
}

}  // namespace ibvexp::migrate
