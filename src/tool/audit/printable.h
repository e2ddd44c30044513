// Text of files as lines of a terminal or a log take it: control characters, which file
// names and symbols may have, become \\xNN.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace ibvexp::audit {

inline std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) out += fmt::format("\\x{:02x}", byte);
    else out += c;
  }
  return out;
}

}  // namespace ibvexp::audit
