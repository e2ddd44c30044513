// What a trace says of a call in numbers, "exp_create_flags 0x4", by the names that
// the program wrote.
#pragma once

#include <string>
#include <string_view>

namespace ibvexp::audit {

// The words of a note of that entry point. A word of which nothing is known stays as
// it is; so do the bits of one that have no name.
std::string name_words(std::string_view entry, std::string_view words);

}  // namespace ibvexp::audit
