// Earlier reports, as JSON: what is known already, and what changed.
#pragma once

#include "tool/audit/report.h"

namespace ibvexp::audit {

// Marks the uses that an earlier report has: as many of a name in a file as there
// were, wherever they stand now. Throws std::runtime_error for what is no report.
void mark_known(Report &report, const std::string &baseline);

struct Difference {
  std::string text;                // for people
  std::string json;                // for programs
  std::vector<std::string> added;  // severities of uses that are new
};

// What changed from one report to the next: verdicts, uses by file and name.
Difference compare(const std::string &old_path, const std::string &new_path);

}  // namespace ibvexp::audit
