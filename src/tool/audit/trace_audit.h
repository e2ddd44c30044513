// Audit of a trace that `ibvexp run --trace` wrote: what really happened.
#pragma once

#include "tool/audit/report.h"

namespace ibvexp::audit {

bool looks_like_trace(std::string_view text);

// Throws InputError for what is no whole trace. Format: docs/trace.schema.json.
void audit_trace(std::string_view text, FileReport &report);

}  // namespace ibvexp::audit
