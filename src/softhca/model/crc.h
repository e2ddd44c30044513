// The CRCs of packets: the invariant one over all that stays on the way, and
// the variant one of InfiniBand's links.
#pragma once

#include <vector>

#include "base/types.h"

namespace softhca {

using Packet = std::vector<u8>;

// The invariant CRC of a packet without its last four bytes, as the bytes to
// append read as a little-endian number.
u32 invariant_crc(const Packet &, bool ethernet);
// The variant CRC of a native packet without its last two bytes, the same way.
u16 variant_crc(const Packet &);

// The register of the invariant CRC (it begins and ends inverted) behind `bytes`
// more bytes, and what it was in front of as many zero bytes.
u32 crc32_add(u32 crc, const u8 *, size_t bytes);
u32 crc32_back(u32 crc, size_t bytes);

}  // namespace softhca
