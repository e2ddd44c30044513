// Counts in words that fit the number: "1 row", "2 rows".
#pragma once

#include <fmt/core.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace ibvexp::tool {

// Without the number. The plural of most adds an "s".
inline std::string noun(std::size_t n, std::string_view one, std::string_view many = {}) {
  if (n == 1) return std::string(one);
  return many.empty() ? std::string(one) + "s" : std::string(many);
}

inline std::string plural(std::size_t n, std::string_view one, std::string_view many = {}) {
  return fmt::format("{} {}", n, noun(n, one, many));
}

}  // namespace ibvexp::tool
