// What `ibvexp audit` says of files, for the other commands.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "tool/command.h"

namespace ibvexp::tool {

// Its report on them, as docs/audit.schema.json describes it.
nlohmann::json audited(const Words &files, bool with_libraries);

}  // namespace ibvexp::tool
