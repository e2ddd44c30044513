// Audit of a trace that `ibvexp run --trace` wrote: what really happened.
#pragma once

#include "tool/audit/report.h"

namespace ibvexp::audit {

bool looks_like_trace(std::string_view text);

// Throws InputError for what is no whole trace. Format: docs/trace.schema.json.
void audit_trace(std::string_view text, FileReport &report);

// The ranks of a parallel program write a trace each. Those that show the same uses become one
// report, with the path of the first and the sums of all. Writes what traces say into `detail`.
void fold_traces(std::vector<FileReport> &files);

}  // namespace ibvexp::audit
