// The outputs of an audit, each from the same Report.
#pragma once

#include "tool/audit/report.h"

#include <cstdio>

namespace ibvexp::audit {

// For people. colour: with ANSI escapes.
std::string as_table(const Report &report, bool colour);
// For programs. Format: docs/audit.schema.json.
std::string as_json(const Report &report);
// For code review tools: SARIF 2.1.0.
std::string as_sarif(const Report &report);
// One file that needs nothing else.
std::string as_html(const Report &report);

}  // namespace ibvexp::audit
