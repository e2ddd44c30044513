// One argument of a list. A std::tuple of them takes the compiler long, in front of every verb.
#pragma once

#include <cstddef>

namespace ibvexp {

template <std::size_t n, class First, class... Rest>
[[gnu::always_inline]] constexpr auto nth(First first, [[maybe_unused]] Rest... rest) noexcept {
  if constexpr (n == 0) return first;
  else return nth<n - 1>(rest...);
}

}  // namespace ibvexp
