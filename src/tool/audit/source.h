// Uses of experimental verbs in C, C++, Rust and Go sources and in build files.
#pragma once

#include <string_view>

#include "tool/audit/report.h"

namespace ibvexp::audit {

// The kind of a file by its name; other for what is neither.
FileKind kind_by_name(std::string_view path);

// Text need not be valid in any encoding. The language is that of the file's name.
void audit_source(std::string_view path, std::string_view text, FileReport &report);
void audit_build_file(std::string_view text, FileReport &report);

}  // namespace ibvexp::audit
