#include "model/eth_frame.h"

#include <algorithm>
#include <array>

namespace softhca {

namespace {

constexpr u8 protocol_tcp = 6, protocol_udp = 17;
constexpr u32 ipv4_header = 20, ipv6_header = 40, udp_header = 8, tcp_header = 20, vxlan_header = 8;

u32 add(const u8 *data, u32 bytes, u32 sum) {
  u64 wide = sum;
  u32 i = 0;
  for (; i + 1 < bytes; i += 2) wide += load_be16(data + i);
  if (i < bytes) wide += u32{data[i]} << 8;
  while (wide >> 32 != 0) wide = (wide & 0xffffffff) + (wide >> 32);
  return static_cast<u32>(wide);
}

u16 fold(u32 sum) {
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<u16>(sum);
}

u32 ipv4_header_bytes(const u8 *ip) { return (ip[0] & 0xfu) * 4; }

bool parse_ipv4(const u8 *data, u32 limit, EthLayers &l) {
  if (limit - l.l3 < ipv4_header) return false;
  const u8 *ip = data + l.l3;
  const u32 header = ipv4_header_bytes(ip);
  if (ip[0] >> 4 != 4 || header < ipv4_header || limit - l.l3 < header) return false;
  l.l3_type = L3::ipv4;
  l.protocol = ip[9];
  constexpr u16 more_fragments = 0x2000, offset = 0x1fff;
  const u16 word = load_be16(ip + 6);
  l.fragment = (word & (more_fragments | offset)) != 0;
  l.first = (word & offset) == 0;
  l.end = std::min<u32>(limit, l.l3 + std::max<u32>(load_be16(ip + 2), header));
  l.l4 = l.l3 + header;
  return true;
}

bool parse_ipv6(const u8 *data, u32 limit, EthLayers &l) {
  constexpr u8 hop_by_hop = 0, routing = 43, fragment = 44, destination_options = 60;
  if (limit - l.l3 < ipv6_header) return false;
  const u8 *ip = data + l.l3;
  if (ip[0] >> 4 != 6) return false;
  l.l3_type = L3::ipv6;
  l.end = std::min<u32>(limit, l.l3 + ipv6_header + load_be16(ip + 4));
  l.l4 = l.l3 + ipv6_header;
  l.protocol = ip[6];
  for (;;) {
    const bool options =
        l.protocol == hop_by_hop || l.protocol == routing || l.protocol == destination_options;
    if ((!options && l.protocol != fragment) || l.end < l.l4 + 8) return true;
    const u8 *header = data + l.l4;
    if (l.protocol == fragment) {
      l.fragment = true;
      l.first = load_be16(header + 2) >> 3 == 0;
    }
    l.protocol = header[0];
    l.l4 += options ? (header[1] + 1u) * 8 : 8;
    if (l.l4 > l.end) {
      l.l4 = l.end;
      return true;
    }
  }
}

// Headers from l2 on. A header that does not fit ends the parse before it.
EthLayers parse_layers(const u8 *data, u32 l2, u32 limit) {
  EthLayers l;
  l.l2 = l2;
  l.end = limit;
  u32 type_at = l2 + 12;
  l.ether_type = load_be16(data + type_at);
  if (l.ether_type == ethertype_svlan && limit >= type_at + 2 + vlan_tag_bytes) {
    l.svlan = true;
    l.vlan_tci = load_be16(data + type_at + 2);
    type_at += vlan_tag_bytes;
    l.ether_type = load_be16(data + type_at);
  }
  if (l.ether_type == ethertype_cvlan && limit >= type_at + 2 + vlan_tag_bytes) {
    l.cvlan = true;
    if (!l.svlan) l.vlan_tci = load_be16(data + type_at + 2);
    type_at += vlan_tag_bytes;
    l.ether_type = load_be16(data + type_at);
  }
  l.l3 = type_at + 2;
  l.l4 = limit;
  const bool ip = (l.ether_type == ethertype_ipv4 && parse_ipv4(data, limit, l)) ||
                  (l.ether_type == ethertype_ipv6 && parse_ipv6(data, limit, l));
  if (!ip || !l.first) return l;
  const u32 room = l.end - std::min(l.l4, l.end);
  const L4 type = l.protocol == protocol_tcp && room >= tcp_header   ? L4::tcp
                  : l.protocol == protocol_udp && room >= udp_header ? L4::udp
                                                                     : L4::none;
  l.has_ports = type != L4::none;
  // What is known of the whole segment, such as its checksum, is not known of a part.
  if (!l.fragment) l.l4_type = type;
  return l;
}

// Pseudo header and segment, checksum field included.
u16 l4_sum(const u8 *frame, const EthLayers &l) {
  const u32 segment = l.end - l.l4;
  u32 sum = l.protocol + segment;
  const u8 *ip = frame + l.l3;
  sum = l.l3_type == L3::ipv4 ? add(ip + 12, 8, sum) : add(ip + 8, 32, sum);
  return fold(add(frame + l.l4, segment, sum));
}

u32 l4_checksum_at(const EthLayers &l) { return l.l4 + (l.l4_type == L4::tcp ? 16 : 6); }

constexpr auto crc_table = [] {
  std::array<u32, 256> t{};
  for (u32 i = 0; i < 256; ++i) {
    u32 c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c & 1) != 0 ? 0xedb88320 ^ (c >> 1) : c >> 1;
    t[i] = c;
  }
  return t;
}();

}  // namespace

EthFrame parse_frame(const u8 *data, u32 bytes) {
  EthFrame f;
  f.data = data;
  f.bytes = bytes;
  f.outer = parse_layers(data, 0, bytes);
  if (f.outer.l4_type != L4::udp || load_be16(data + f.outer.l4 + 2) != vxlan_port) return f;
  // Known by its port. The flag that a network identifier is there is not looked at:
  // the vendor's own test of steering sends it clear and expects the rule to match.
  const u32 vxlan = f.outer.l4 + udp_header;
  if (f.outer.end < vxlan + vxlan_header + eth_header_bytes) return f;
  f.tunnel = true;
  f.vni = load_be32(data + vxlan + 4) >> 8;
  f.inner = parse_layers(data, vxlan + vxlan_header, f.outer.end);
  return f;
}

bool l3_checksum_ok(const u8 *frame, const EthLayers &l) {
  if (l.l3_type == L3::ipv6) return true;  // has none
  if (l.l3_type != L3::ipv4) return false;
  return ones_complement_sum(frame + l.l3, ipv4_header_bytes(frame + l.l3)) == 0xffff;
}

bool l4_checksum_ok(const u8 *frame, const EthLayers &l) {
  if (l.l4_type == L4::none) return false;
  // UDP over IPv4 may do without.
  if (l.l4_type == L4::udp && l.l3_type == L3::ipv4 && load_be16(frame + l4_checksum_at(l)) == 0)
    return true;
  return l4_sum(frame, l) == 0xffff;
}

void write_checksums(u8 *frame, const EthLayers &l, bool l3, bool l4) {
  if (l3 && l.l3_type == L3::ipv4) {
    u8 *ip = frame + l.l3;
    store_be16(ip + 10, 0);
    store_be16(ip + 10, static_cast<u16>(~ones_complement_sum(ip, ipv4_header_bytes(ip))));
  }
  if (l4 && l.l4_type != L4::none) {
    u8 *field = frame + l4_checksum_at(l);
    store_be16(field, 0);
    const u16 sum = static_cast<u16>(~l4_sum(frame, l));
    // In UDP zero would mean that there is no checksum.
    store_be16(field, sum == 0 && l.l4_type == L4::udp ? u16{0xffff} : sum);
  }
}

u16 ones_complement_sum(const u8 *data, u32 bytes) { return fold(add(data, bytes, 0)); }

u32 frame_check_sequence(const u8 *data, u32 bytes) {
  u32 c = 0xffffffff;
  for (u32 i = 0; i < bytes; ++i) c = crc_table[(c ^ data[i]) & 0xff] ^ (c >> 8);
  return ~c;
}

}  // namespace softhca
