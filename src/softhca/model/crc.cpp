#include "model/crc.h"

#include <array>

#include "model/bth.h"

namespace softhca {

namespace {

constexpr std::array<u32, 256> crc32_table = [] {
  std::array<u32, 256> table{};
  for (u32 i = 0; i < 256; ++i) {
    u32 c = i;
    for (int k = 0; k < 8; ++k) c = c & 1 ? 0xedb88320 ^ c >> 1 : c >> 1;
    table[i] = c;
  }
  return table;
}();

// The entry of the table whose highest byte this is: they all differ.
constexpr std::array<u8, 256> crc32_entry = [] {
  std::array<u8, 256> entry{};
  for (u32 i = 0; i < 256; ++i) entry[crc32_table[i] >> 24] = static_cast<u8>(i);
  return entry;
}();

}  // namespace

u32 crc32_add(u32 crc, const u8 *p, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) crc = crc32_table[(crc ^ p[i]) & 0xff] ^ crc >> 8;
  return crc;
}

u32 crc32_back(u32 crc, size_t bytes) {
  for (; bytes != 0; --bytes) {
    const u8 i = crc32_entry[crc >> 24];
    crc = (crc ^ crc32_table[i]) << 8 | i;
  }
  return crc;
}

u32 invariant_crc(const Packet &packet, bool ethernet) {
  // What may change on the way counts as ones.
  Packet p = packet;
  u32 crc = ~0u;
  const auto add = [&crc](u8 byte) { crc = crc32_table[(crc ^ byte) & 0xff] ^ crc >> 8; };
  size_t at = 0;
  if (ethernet) {
    for (int i = 0; i < 8; ++i) add(0xff);  // where the LRH would be
    at = ether_bytes;
    const bool ipv4 = p[at] >> 4 == 4;
    if (ipv4) {
      p[at + 1] = p[at + 8] = p[at + 10] = p[at + 11] = 0xff;
    } else {
      p[at] |= 0x0f;
      p[at + 1] = p[at + 2] = p[at + 3] = p[at + 7] = 0xff;
    }
    const size_t udp = at + (ipv4 ? ipv4_bytes : ipv6_bytes);
    p[udp + 6] = p[udp + 7] = 0xff;
    p[udp + udp_bytes + 4] = 0xff;
  } else {
    const bool global = (p[1] & 3) == 3;
    p[0] |= 0xf0;
    if (global) {
      p[lrh_bytes] |= 0x0f;
      p[lrh_bytes + 1] = p[lrh_bytes + 2] = p[lrh_bytes + 3] = p[lrh_bytes + 7] = 0xff;
    }
    p[lrh_bytes + (global ? ipv6_bytes : 0) + 4] = 0xff;
  }
  for (; at < p.size(); ++at) add(p[at]);
  return ~crc;
}

u16 variant_crc(const Packet &p) {
  // x^16 + x^12 + x^3 + x + 1, least significant bit first.
  u16 crc = 0xffff;
  for (const u8 byte : p) {
    crc = static_cast<u16>(crc ^ byte);
    for (int k = 0; k < 8; ++k)
      crc = static_cast<u16>((crc & 1) != 0 ? 0xd008 ^ crc >> 1 : crc >> 1);
  }
  return static_cast<u16>(~crc);
}

}  // namespace softhca
