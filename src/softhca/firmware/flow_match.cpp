#include "firmware/flow_match.h"

#include <algorithm>
#include <array>
#include <cerrno>

namespace softhca::firmware {

namespace {

// struct mlx5_ifc_fte_match_param: sets of 64 bytes.
constexpr u32 set_bytes = 64, outer_at = 0, misc_at = 64, inner_at = 128, known_bytes = 192;
constexpr u32 ether_type_at = 6, ip_version_at = 18;  // in a set; the latter among other bits

// A field of both parameters to its place in the key, and out of the
// parameters: what remains of the mask is not supported.
class Fields {
 public:
  Fields(const u8 *value, const u8 *mask) {
    std::memcpy(value_, value, set_bytes);
    std::memcpy(mask_, mask, set_bytes);
  }
  template <size_t n>
  bool take(u32 at, u8 (&value)[n], u8 (&mask)[n], u32 into = 0, u32 bytes = n) {
    std::memcpy(value + into, value_ + at, bytes);
    std::memcpy(mask + into, mask_ + at, bytes);
    return clear(at, bytes);
  }
  bool take(u32 at, u8 &value, u8 &mask) {
    value = value_[at];
    mask = mask_[at];
    return clear(at, 1);
  }
  // Bits of one byte.
  u8 take_bits(u32 at, u8 bits, u8 &value) {
    const u8 m = mask_[at] & bits;
    value = value_[at] & bits;
    mask_[at] &= static_cast<u8>(~bits);
    return m;
  }
  bool masked(u32 at, u32 bytes) const {
    return std::any_of(mask_ + at, mask_ + at + bytes, [](u8 b) { return b != 0; });
  }
  bool all_taken() const { return !masked(0, set_bytes); }

 private:
  // Whether there was anything to match.
  bool clear(u32 at, u32 bytes) {
    const bool any = masked(at, bytes);
    std::memset(mask_ + at, 0, bytes);
    return any;
  }
  u8 value_[set_bytes], mask_[set_bytes];
};

int set_protocol(FlowLayerKey &value, FlowLayerKey &mask, u8 protocol) {
  if (mask.protocol != 0 && (value.protocol & mask.protocol) != (protocol & mask.protocol))
    return EINVAL;
  value.protocol = protocol;
  mask.protocol = 0xff;
  return 0;
}

// fte_match_set_lyr_2_4.
int read_layer(const u8 *v, const u8 *m, FlowLayerKey &value, FlowLayerKey &mask) {
  constexpr u32 smac = 0, ether_type = ether_type_at, dmac = 8, vlan = 14, protocol = 16,
                traffic_class = 17, bits = ip_version_at, tcp_ports = 20, udp_ports = 28,
                src_ip = 32, dst_ip = 48, ipv4_in_ip = 12;
  constexpr u8 cvlan_bit = 0x80, svlan_bit = 0x40, ip_version_bits = 0x1e;
  Fields f(v, m);
  f.take(smac, value.src_mac, mask.src_mac);
  f.take(ether_type, value.ether_type, mask.ether_type);
  f.take(dmac, value.dst_mac, mask.dst_mac);
  f.take(vlan, value.vlan_tci, mask.vlan_tci);
  f.take(protocol, value.protocol, mask.protocol);
  f.take(traffic_class, value.traffic_class, mask.traffic_class);
  u8 set = 0;
  if (f.take_bits(bits, cvlan_bit, set) != 0) {
    value.cvlan = set != 0 ? 1 : 0;
    mask.cvlan = 0xff;
  }
  if (f.take_bits(bits, svlan_bit, set) != 0) {
    value.svlan = set != 0 ? 1 : 0;
    mask.svlan = 0xff;
  }
  if (const u8 version = f.take_bits(bits, ip_version_bits, set); version != 0) {
    if (version != ip_version_bits) return EOPNOTSUPP;
    value.ip_version = set >> 1;
    mask.ip_version = 0xff;
  }
  if (f.masked(tcp_ports, 4) && f.masked(udp_ports, 4)) return EINVAL;
  if (f.masked(tcp_ports, 4) || f.masked(udp_ports, 4)) {
    const bool tcp = f.masked(tcp_ports, 4);
    const u32 at = tcp ? tcp_ports : udp_ports;
    f.take(at, value.src_port, mask.src_port);
    f.take(at + 2, value.dst_port, mask.dst_port);
    if (const int error = set_protocol(value, mask, tcp ? 6 : 17); error != 0) return error;
  }
  const bool v6 = value.ip_version == 6 || load_be16(value.ether_type) == ethertype_ipv6;
  if (v6) {
    f.take(src_ip, value.src_ip, mask.src_ip);
    f.take(dst_ip, value.dst_ip, mask.dst_ip);
  } else if (f.masked(src_ip, 32)) {
    f.take(src_ip + ipv4_in_ip, value.src_ip, mask.src_ip, 0, 4);
    f.take(dst_ip + ipv4_in_ip, value.dst_ip, mask.dst_ip, 0, 4);
    value.ip_version = 4;
    mask.ip_version = 0xff;
  }
  return f.all_taken() ? 0 : EOPNOTSUPP;
}

// fte_match_set_misc: of it, the number of a VXLAN network and flow labels of IPv6.
int read_misc(const u8 *v, const u8 *m, FlowKey &value, FlowKey &mask) {
  constexpr u32 vxlan_vni = 20, outer_label = 29, inner_label = 33;
  Fields f(v, m);
  if (f.take(vxlan_vni, value.vni, mask.vni, 1, 3)) {
    value.tunnel = 1;
    mask.tunnel = 0xff;
  }
  f.take(outer_label, value.outer.flow_label, mask.outer.flow_label, 1, 3);
  f.take(inner_label, value.inner.flow_label, mask.inner.flow_label, 1, 3);
  return f.all_taken() ? 0 : EOPNOTSUPP;
}

}  // namespace

int read_match(const u8 *v, const u8 *m, FlowKey &value, FlowKey &mask) {
  if (std::any_of(m + known_bytes, m + match_bytes, [](u8 b) { return b != 0; })) return EOPNOTSUPP;
  if (const int error = read_layer(v + outer_at, m + outer_at, value.outer, mask.outer); error != 0)
    return error;
  if (const int error = read_misc(v + misc_at, m + misc_at, value, mask); error != 0) return error;
  if (const int error = read_layer(v + inner_at, m + inner_at, value.inner, mask.inner); error != 0)
    return error;
  if (std::any_of(m + inner_at, m + inner_at + set_bytes, [](u8 b) { return b != 0; })) {
    value.tunnel = 1;
    mask.tunnel = 0xff;
  }
  // A value has no bits but those that are compared.
  u8 *to = reinterpret_cast<u8 *>(&value);
  const u8 *bits = reinterpret_cast<const u8 *>(&mask);
  for (size_t i = 0; i < sizeof value; ++i) to[i] &= bits[i];
  return 0;
}

// Which fields there are depends on the version of IP, which a mask does not say.
bool match_is_known(const u8 *mask) {
  for (const bool v6 : {false, true}) {
    std::array<u8, match_bytes> value{};
    FlowKey v{}, m{};
    for (const u32 set : {outer_at, inner_at}) {
      value[set + ip_version_at] = static_cast<u8>((v6 ? 6 : 4) << 1);
      store_be16(value.data() + set + ether_type_at, v6 ? ethertype_ipv6 : ethertype_ipv4);
    }
    if (read_match(value.data(), mask, v, m) != EOPNOTSUPP) return true;
  }
  return false;
}

}  // namespace softhca::firmware
