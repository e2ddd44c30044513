// Ethernet frames for tests: built from the outside in, and looked into. What the
// device computes is computed here once more, by other code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace frames {

using Bytes = std::vector<std::uint8_t>;
using Mac = std::uint8_t[6];

inline constexpr Mac ours = {0x02, 0x11, 0x22, 0x33, 0x44, 0x55};
inline constexpr Mac theirs = {0x02, 0x66, 0x77, 0x88, 0x99, 0xaa};
inline constexpr Mac group = {0x01, 0x00, 0x5e, 0x01, 0x02, 0x03};

inline constexpr std::uint8_t tcp = 6, udp = 17;
inline constexpr std::uint16_t vxlan_port = 4789;

inline std::uint16_t load16(const std::uint8_t *p) {
  return static_cast<std::uint16_t>(p[0] << 8 | p[1]);
}
inline std::uint32_t load32(const std::uint8_t *p) {
  return std::uint32_t{load16(p)} << 16 | load16(p + 2);
}
inline void store16(std::uint8_t *p, std::uint32_t v) {
  p[0] = static_cast<std::uint8_t>(v >> 8);
  p[1] = static_cast<std::uint8_t>(v);
}

// Ones' complement sum of 16-bit words, folded.
inline std::uint16_t sum16(const std::uint8_t *p, std::size_t n, std::uint32_t sum = 0) {
  for (std::size_t i = 0; i < n; i += 2)
    sum += std::uint32_t{p[i]} << 8 | (i + 1 < n ? p[i + 1] : 0u);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(sum);
}

// Where the headers of a frame (or of the one inside) begin.
struct Headers {
  std::size_t l3 = 0, l4 = 0, payload = 0, end = 0;
  std::uint8_t version = 0, protocol = 0;
};

inline Headers headers_of(const std::uint8_t *frame, std::size_t l2 = 0) {
  Headers h;
  std::size_t at = l2 + 12;
  if (load16(frame + at) == 0x8100) at += 4;
  const std::uint16_t type = load16(frame + at);
  h.l3 = at + 2;
  if (type == 0x0800) {
    h.version = 4;
    h.protocol = frame[h.l3 + 9];
    h.l4 = h.l3 + 20;
    h.end = h.l3 + load16(frame + h.l3 + 2);
  } else if (type == 0x86dd) {
    h.version = 6;
    h.protocol = frame[h.l3 + 6];
    h.l4 = h.l3 + 40;
    h.end = h.l4 + load16(frame + h.l3 + 4);
  }
  h.payload = h.l4 + (h.protocol == tcp ? 20 : h.protocol == udp ? 8 : 0);
  return h;
}

// 0xffff if the checksum of the transport header is right.
inline std::uint16_t transport_sum(const std::uint8_t *frame, const Headers &h) {
  const std::size_t length = h.end - h.l4;
  std::uint32_t pseudo = h.protocol + static_cast<std::uint32_t>(length);
  pseudo += h.version == 4 ? sum16(frame + h.l3 + 12, 8) : sum16(frame + h.l3 + 8, 32);
  return sum16(frame + h.l4, length, pseudo);
}

inline bool checksums_good(const std::uint8_t *frame, std::size_t l2 = 0) {
  const Headers h = headers_of(frame, l2);
  return (h.version != 4 || sum16(frame + h.l3, 20) == 0xffff) && transport_sum(frame, h) == 0xffff;
}

class Builder {
 public:
  explicit Builder(const Mac &dst = ours, const Mac &src = theirs) { mac(dst, src); }

  Builder &mac(const Mac &dst, const Mac &src) {
    bytes_.insert(bytes_.end(), dst, dst + 6);
    bytes_.insert(bytes_.end(), src, src + 6);
    return *this;
  }
  Builder &vlan(std::uint16_t tci) { return be16(0x8100).be16(tci); }
  Builder &ipv4(std::uint32_t src, std::uint32_t dst, std::uint8_t protocol, std::uint8_t tos = 0) {
    be16(0x0800).be16(0x4500u | tos).be16(0).be16(7).be16(0x4000);
    return be16(64u << 8 | protocol).be16(0).be32(src).be32(dst);
  }
  Builder &ipv6(std::uint8_t src, std::uint8_t dst, std::uint8_t protocol,
                std::uint32_t flow_label = 0, std::uint8_t traffic_class = 0) {
    be16(0x86dd).be32(6u << 28 | std::uint32_t{traffic_class} << 20 | flow_label);
    be16(0).be16(std::uint32_t{protocol} << 8 | 64);
    for (const std::uint8_t last : {src, dst}) {
      be16(0xfd00);
      bytes_.resize(bytes_.size() + 13);
      bytes_.push_back(last);
    }
    return *this;
  }
  Builder &udp(std::uint16_t src, std::uint16_t dst) { return be16(src).be16(dst).be32(0); }
  Builder &tcp(std::uint16_t src, std::uint16_t dst, std::uint32_t sequence = 1,
               std::uint8_t flags = 0x10) {
    return be16(src).be16(dst).be32(sequence).be32(1).be16(0x5000u | flags).be16(100).be32(0);
  }
  Builder &vxlan(std::uint32_t vni) { return be32(0x08000000).be32(vni << 8); }
  Builder &payload(std::size_t n, unsigned seed = 1) {
    for (std::size_t i = 0; i < n; ++i) bytes_.push_back(static_cast<std::uint8_t>(i * 7 + seed));
    return *this;
  }

  // With lengths but no checksums.
  Bytes raw() const {
    Bytes frame = bytes_;
    lengths(frame, 0);
    return frame;
  }
  Bytes build() const {
    Bytes frame = raw();
    checksums(frame, 0);
    return frame;
  }

 private:
  Builder &be16(std::uint32_t v) {
    bytes_.push_back(static_cast<std::uint8_t>(v >> 8));
    bytes_.push_back(static_cast<std::uint8_t>(v));
    return *this;
  }
  Builder &be32(std::uint32_t v) { return be16(v >> 16).be16(v & 0xffff); }

  // Behind the VXLAN header, or 0.
  static std::size_t inner_of(const Bytes &frame, const Headers &h) {
    const bool tunnel = h.protocol == frames::udp && h.payload + 8 < frame.size() &&
                        load16(frame.data() + h.l4 + 2) == vxlan_port;
    return tunnel ? h.payload + 8 : 0;
  }
  static void lengths(Bytes &frame, std::size_t l2) {
    const Headers h = headers_of(frame.data(), l2);
    if (h.version == 4)
      store16(frame.data() + h.l3 + 2, static_cast<std::uint32_t>(frame.size() - h.l3));
    if (h.version == 6)
      store16(frame.data() + h.l3 + 4, static_cast<std::uint32_t>(frame.size() - h.l4));
    if (h.version != 0 && h.protocol == frames::udp)
      store16(frame.data() + h.l4 + 4, static_cast<std::uint32_t>(frame.size() - h.l4));
    if (const std::size_t inner = inner_of(frame, h)) lengths(frame, inner);
  }
  static void checksums(Bytes &frame, std::size_t l2) {
    const Headers h = headers_of(frame.data(), l2);
    if (h.version == 0) return;
    if (const std::size_t inner = inner_of(frame, h)) checksums(frame, inner);
    if (h.version == 4) {
      store16(frame.data() + h.l3 + 10, 0);
      store16(frame.data() + h.l3 + 10,
              static_cast<std::uint16_t>(~sum16(frame.data() + h.l3, 20)));
    }
    std::uint8_t *at = frame.data() + h.l4 + (h.protocol == frames::tcp ? 16 : 6);
    store16(at, 0);
    store16(at, static_cast<std::uint16_t>(~transport_sum(frame.data(), h)));
  }

  Bytes bytes_;
};

// The hash of receive-side scaling, bit by bit from its definition.
inline std::uint32_t toeplitz(const std::uint8_t *key, const Bytes &input) {
  std::uint32_t hash = 0;
  for (std::size_t bit = 0; bit < input.size() * 8; ++bit) {
    if ((input[bit / 8] >> (7 - bit % 8) & 1) == 0) continue;
    std::uint32_t window = 0;
    for (std::size_t k = bit; k < bit + 32; ++k)
      window = window << 1 | (key[k / 8] >> (7 - k % 8) & 1u);
    hash ^= window;
  }
  return hash;
}

}  // namespace frames
