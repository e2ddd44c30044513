// From the names that programs use to what the tables say about them.
#pragma once

#include "tool/audit/report.h"

namespace ibvexp::audit {

// Names of the experimental API; null for any other name. Thread-safe; what it
// returns lives as long as the process.
const Subject *subject_of(std::string_view name);

// A member of the API's structures that is refused where it is used; null for
// others, and for names that any structure may have. inner is the member of it that is
// named behind it: it decides where several of the API's structures have such a member.
const Subject *refused_member(std::string_view name, std::string_view inner);

// Whether the name would be one of the API, had the tables a row for it.
bool is_experimental(std::string_view name);

// Classes of their own, which no row is about.
const Subject &private_layout();  // code that reads structures inside of libmlx5
const Subject &old_lookup();      // look-up of 2.x headers
const Subject &unknown_name(std::string_view name);
const Subject &provider_plugin();

}  // namespace ibvexp::audit
