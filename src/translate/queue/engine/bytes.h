// Memory that the device reads and writes: big-endian, of any type.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ibvexp::engine {

static_assert(std::endian::native == std::endian::little);

constexpr std::uint16_t be(std::uint16_t v) { return __builtin_bswap16(v); }
constexpr std::uint32_t be(std::uint32_t v) { return __builtin_bswap32(v); }
constexpr std::uint64_t be(std::uint64_t v) { return __builtin_bswap64(v); }

template <class T>
[[gnu::always_inline]] inline T load(const void *at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}
template <class T>
[[gnu::always_inline]] inline void store(void *at, T value) {
  std::memcpy(at, &value, sizeof(value));
}
template <class T>
[[gnu::always_inline]] inline T load_be(const void *at) {
  return be(load<T>(at));
}

}  // namespace ibvexp::engine
