// Audit of an ELF file: what machine code, imports and debug information say.
#pragma once

#include "tool/audit/report.h"

namespace ibvexp::audit {

// Throws InputError. Adds nothing for a binary that has nothing to do with verbs.
void audit_binary(const std::string &path, FileReport &report);

}  // namespace ibvexp::audit
