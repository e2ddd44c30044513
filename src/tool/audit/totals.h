// Counts over a report, for summaries.
#pragma once

#include <array>
#include <map>

#include "tool/audit/report.h"

namespace ibvexp::audit {

struct Totals {
  std::size_t uses = 0, files = 0;
  std::array<std::size_t, severity_count> by_severity{};
  std::array<std::size_t, std::size(effort_names)> by_effort{};
  std::map<std::string_view, std::array<std::size_t, severity_count>> by_family;
};

inline Totals totals(const Report &report) {
  Totals out;
  for (const FileReport &f : report.files) {
    if (!f.uses.empty()) ++out.files;
    for (const Use &u : f.uses) {
      const auto severity = static_cast<std::size_t>(u.severity);
      ++out.uses;
      ++out.by_severity[severity];
      ++out.by_effort[static_cast<std::size_t>(u.subject->effort)];
      ++out.by_family[u.subject->family][severity];
    }
  }
  return out;
}

}  // namespace ibvexp::audit
