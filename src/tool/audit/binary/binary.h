// Audit of an ELF file: what machine code, imports and debug information say.
#pragma once

#include "tool/audit/report.h"

namespace ibvexp::audit {

// Throws InputError. Adds nothing for a binary that has nothing to do with verbs.
void audit_binary(const std::string &path, FileReport &report);

// Files that the libraries named in a report are found in, as the dynamic linker
// would look for them; those it would not find are left out.
std::vector<std::string> find_libraries(const std::string &path, const FileReport &report);

}  // namespace ibvexp::audit
