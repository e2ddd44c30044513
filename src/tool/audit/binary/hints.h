// Flags, opcodes and masks that machine code puts into a request before it calls
// a slot. A lower bound: most values are computed elsewhere.
#pragma once

#include <optional>

#include "tool/audit/binary/table_calls.h"

namespace ibvexp::audit {

struct Hint {
  std::string_view constant;  // name of a row
  std::string_view field;
};

std::vector<Hint> hints_of(std::string_view verb, const ArgumentValues &arguments);

}  // namespace ibvexp::audit
