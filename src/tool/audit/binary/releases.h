// The release of the header that a binary was compiled with, from what the
// header's inlines left in its code.
#pragma once

#include "tool/audit/binary/table_calls.h"

namespace ibvexp::audit {

// As text, such as "MLNX_OFED 3.2 to 3.4"; empty without any indication.
std::string header_release(const Dispatch &dispatch);

// The release of the private structures: "3.x" or "4.x" if all releases that are possible agree,
// else empty.
std::string layout_release(const Dispatch &dispatch);

}  // namespace ibvexp::audit
