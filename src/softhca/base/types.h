// Fixed-width names used throughout the device and big-endian access to the
// byte layouts of WQEs, CQEs and commands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace softhca {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i32 = std::int32_t;
using i64 = std::int64_t;

constexpr u16 swap16(u16 v) { return __builtin_bswap16(v); }
constexpr u32 swap32(u32 v) { return __builtin_bswap32(v); }
constexpr u64 swap64(u64 v) { return __builtin_bswap64(v); }

// The device's layouts are big-endian; every supported host is little-endian.
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

inline u16 load_be16(const void *p) {
  u16 v;
  std::memcpy(&v, p, 2);
  return swap16(v);
}
inline u32 load_be32(const void *p) {
  u32 v;
  std::memcpy(&v, p, 4);
  return swap32(v);
}
inline u64 load_be64(const void *p) {
  u64 v;
  std::memcpy(&v, p, 8);
  return swap64(v);
}
inline void store_be16(void *p, u16 v) {
  v = swap16(v);
  std::memcpy(p, &v, 2);
}
inline void store_be32(void *p, u32 v) {
  v = swap32(v);
  std::memcpy(p, &v, 4);
}
inline void store_be64(void *p, u64 v) {
  v = swap64(v);
  std::memcpy(p, &v, 8);
}

// Doorbell records are shared with the application's threads.
inline u32 read_doorbell(const u32 *record) {
  return swap32(__atomic_load_n(record, __ATOMIC_ACQUIRE));
}

constexpr u64 align_up(u64 v, u64 a) { return (v + a - 1) & ~(a - 1); }
constexpr u32 round_up_pow2(u32 v) {
  u32 n = 1;
  while (n < v) n <<= 1;
  return n;
}

constexpr u32 page_size = 4096;

// Compares 24-bit packet sequence numbers on the circle: <0, 0 or >0.
constexpr i32 psn_diff(u32 a, u32 b) { return static_cast<i32>((a - b) << 8) >> 8; }
constexpr u32 psn_add(u32 a, u32 n) { return (a + n) & 0xffffff; }

}  // namespace softhca
