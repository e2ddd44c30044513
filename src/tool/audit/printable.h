// Text of files as lines of a terminal or a log take it: what file names and symbols may have
// beside printable UTF-8 becomes \\xNN, byte by byte.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace ibvexp::audit {

// Bytes of the printable character that text begins with; 0: there is none. Control characters
// are those of ASCII, those of Latin-1 (one of them begins an escape sequence, too), and those
// that turn the direction of a line.
inline std::size_t printable_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return byte(0) < 0x20 || byte(0) == 0x7f ? 0 : 1;
  const std::size_t size = byte(0) < 0xc2 || byte(0) > 0xf4 ? 0
                           : byte(0) < 0xe0                 ? 2
                           : byte(0) < 0xf0                 ? 3
                                                            : 4;
  if (size == 0 || text.size() < size) return 0;
  char32_t c = byte(0) & (0xffu >> (size + 1));
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    c = c << 6 | (byte(i) & 0x3f);
  }
  constexpr char32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  const auto within = [c](char32_t first, char32_t last) { return c >= first && c <= last; };
  const bool hidden = within(0x80, 0x9f) || within(0x200e, 0x200f) || within(0x2028, 0x202e) ||
                      within(0x2066, 0x2069) || within(0xd800, 0xdfff) || c > 0x10ffff;
  return c < least[size] || hidden ? 0 : size;
}

inline std::string printable(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = printable_bytes(text.substr(at));
    if (size == 0) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[at]));
    else out += text.substr(at, size);
    at += std::max<std::size_t>(size, 1);
  }
  return out;
}

}  // namespace ibvexp::audit
