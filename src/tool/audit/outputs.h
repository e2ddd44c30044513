// The outputs of an audit, each from the same Report.
#pragma once

#include <cstdio>

#include "tool/audit/report.h"

namespace ibvexp::audit {

// For people. colour: with ANSI escapes. Lines are no longer than width, but for paths, names and
// commands that are.
std::string as_table(const Report &report, bool colour, std::size_t width);
inline constexpr std::size_t usual_width = 100;  // where there is no terminal

// For programs. Format: docs/audit.schema.json.
std::string as_json(const Report &report);
// One line per finding, as compilers write them: for editors.
std::string as_gcc(const Report &report);
// Workflow commands of GitHub, which become annotations.
std::string as_github(const Report &report);
// For documents and comments on a change.
std::string as_markdown(const Report &report);
// Every use, for spreadsheets: RFC 4180.
std::string as_csv(const Report &report);
// For code review tools: SARIF 2.1.0.
std::string as_sarif(const Report &report);
// One file that needs nothing else.
std::string as_html(const Report &report);

}  // namespace ibvexp::audit
