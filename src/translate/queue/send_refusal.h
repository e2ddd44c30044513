// Work requests that are refused for what they ask: the rows' answers.
#pragma once

#include <cstdint>

namespace ibvexp::translate {

// Whether an opcode beyond the basic ones is served in this process.
bool opcode_served(int opcode);

// The errno for an opcode that is not served, logged; EINVAL for an unknown one.
int refuse_opcode(int opcode);

// The errno for flags of which some are refused, logged.
int refuse_send_flags(std::uint64_t flags, std::uint64_t refused);

}  // namespace ibvexp::translate
