// Sixteen bytes at once, with the vectors of GCC and Clang: comparisons give -1 or 0 for each.
#pragma once

#include <cstdint>
#include <cstring>

namespace ibvexp::audit {

constexpr std::size_t block_size = 16;
using ByteBlock = std::uint8_t __attribute__((vector_size(block_size)));

inline ByteBlock block_at(const std::uint8_t *bytes) {
  ByteBlock out;
  std::memcpy(&out, bytes, sizeof out);
  return out;
}

template <class Comparison>
bool any(Comparison found) {
  std::uint64_t halves[2];
  static_assert(sizeof halves == sizeof found);
  std::memcpy(halves, &found, sizeof found);
  return (halves[0] | halves[1]) != 0;
}

}  // namespace ibvexp::audit
