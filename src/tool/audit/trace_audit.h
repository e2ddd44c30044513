// Audit of a trace that `ibvexp run --trace` wrote: what really happened.
#pragma once

#include "tool/audit/report.h"

namespace ibvexp::audit {

// Whether a row that was answered ENOTSUP so often was refused: for `ibvexp run
// --fail-on-refused` and for --fail-on of its trace. Bits that an answer leaves out are not.
bool was_refused(std::string_view row, std::uint64_t refusals);

bool looks_like_trace(std::string_view text);

// Throws InputError for what is no whole trace. Format: docs/trace.schema.json.
void audit_trace(std::string_view text, FileReport &report);

}  // namespace ibvexp::audit
