// Receive side scaling: the Toeplitz hash over the selected header fields.
#include "model/eth_queue.h"

namespace softhca {

u32 toeplitz(const u8 *key, const u8 *input, u32 bytes) {
  u32 hash = 0;
  u32 window = load_be32(key);
  for (u32 i = 0; i < bytes; ++i) {
    // Behind the key's end zeros are shifted in.
    const u8 next = i + 4 < toeplitz_key_bytes ? key[i + 4] : 0;
    for (int bit = 7; bit >= 0; --bit) {
      if ((input[i] >> bit & 1) != 0) hash ^= window;
      window = window << 1 | (next >> bit & 1);
    }
  }
  return hash;
}

RssResult rss_hash(const Rss &rss, const EthFrame &f) {
  const EthLayers &l = (rss.fields & hash_inner) != 0 && f.tunnel ? f.inner : f.outer;
  // Addresses, then ports, source first. What is not selected is left out.
  u8 input[40];
  u32 n = 0;
  RssResult r;
  const auto take = [&](u32 field, u32 at, u32 bytes, u8 type) {
    if ((rss.fields & field) == 0) return;
    std::memcpy(input + n, f.data + at, bytes);
    n += bytes;
    r.type |= type;
  };
  // Bits 0-1 IP source, 2-3 IP destination, 4-5 and 6-7 the ports of these.
  if (l.l3_type == L3::ipv4) {
    take(hash_src_ipv4, l.l3 + 12, 4, 1);
    take(hash_dst_ipv4, l.l3 + 16, 4, 1 << 2);
  } else if (l.l3_type == L3::ipv6) {
    take(hash_src_ipv6, l.l3 + 8, 16, 2);
    take(hash_dst_ipv6, l.l3 + 24, 16, 2 << 2);
  }
  if (l.l4_type == L4::tcp) {
    take(hash_src_tcp, l.l4, 2, 1 << 4);
    take(hash_dst_tcp, l.l4 + 2, 2, 1 << 6);
  } else if (l.l4_type == L4::udp) {
    take(hash_src_udp, l.l4, 2, 2 << 4);
    take(hash_dst_udp, l.l4 + 2, 2, static_cast<u8>(2 << 6));
  }
  // Security parameter indices begin ESP headers, and stand behind a word of AH.
  constexpr u8 esp = 50, ah = 51;
  const u32 spi = l.l4 + (l.protocol == ah ? 4 : 0);
  if ((l.protocol == esp || l.protocol == ah) && l.first && spi + 4 <= l.end)
    take(hash_ipsec_spi, spi, 4, 0);
  if (n != 0) r.hash = toeplitz(rss.key.data(), input, n);
  return r;
}

}  // namespace softhca
