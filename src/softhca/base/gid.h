// IPv4 addresses in GIDs: they stand behind the prefix of IPv4-mapped IPv6 addresses.
#pragma once

#include <cstring>

#include "base/types.h"

namespace softhca {

inline constexpr u8 ipv4_gid_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

// `gid` has 16 bytes.
inline bool is_ipv4_gid(const u8 *gid) {
  return std::memcmp(gid, ipv4_gid_prefix, sizeof ipv4_gid_prefix) == 0;
}

}  // namespace softhca
