// Where frames are received: TIR and the tables of RQs that they spread frames over (RQT).
#include <algorithm>

#include "firmware/queues.h"

namespace softhca::firmware {

namespace {

constexpr u32 context_at = 32, box_bytes = 272, modify_mask_at = 16;

// tirc of mlx5_ifc.h, bits; the key in bytes.
constexpr u32 type_bit = 32, tls_bit = 36, merge_bits = 148, direct_rq = 232, tunnel_bit = 258,
              table_bits = 264, function_bits = 288, loopback_bits = 294, domain_bits = 296,
              outer_fields = 640, inner_fields = 672;
constexpr u32 key_at = 40;
enum Function : u32 { function_none = 0, function_xor = 1, function_toeplitz = 2 };
// Bits for the frames of the TIR's own transport domain that come back to it.
constexpr u32 own_unicast = 1, own_multicast = 2;

// A selector: kinds of the addresses and the ports, and which of them.
u32 hash_fields(u32 selector) {
  constexpr u32 ipv6 = 1u << 31, udp = 1u << 30;
  constexpr u32 src_ip = 1, dst_ip = 2, src_port = 4, dst_port = 8, spi = 16;
  const bool v6 = (selector & ipv6) != 0, is_udp = (selector & udp) != 0;
  u32 fields = 0;
  if ((selector & src_ip) != 0) fields |= v6 ? hash_src_ipv6 : hash_src_ipv4;
  if ((selector & dst_ip) != 0) fields |= v6 ? hash_dst_ipv6 : hash_dst_ipv4;
  if ((selector & src_port) != 0) fields |= is_udp ? hash_src_udp : hash_src_tcp;
  if ((selector & dst_port) != 0) fields |= is_udp ? hash_dst_udp : hash_dst_tcp;
  if ((selector & spi) != 0) fields |= hash_ipsec_spi;
  return fields;
}

Status read_hash(const u8 *context, Rss &rss) {
  constexpr u32 fields_known = 3u << 30 | 31;
  const u32 function = get_field(context, function_bits, 4);
  const u32 outer = get_field(context, outer_fields, 32),
            inner = get_field(context, inner_fields, 32);
  // Drivers choose the other function where there is nothing to hash.
  if (function == function_none || (function == function_xor && (outer | inner) == 0)) {
    rss.fields = 0;
    return Status::ok;
  }
  if (function != function_toeplitz || ((outer | inner) & ~fields_known) != 0)
    return Status::bad_param;
  rss.fields = hash_fields(inner);
  rss.fields = rss.fields != 0 ? rss.fields | hash_inner : hash_fields(outer);
  std::copy_n(context + key_at, toeplitz_key_bytes, rss.key.begin());
  return Status::ok;
}

void read_loopback(const u8 *context, EthQp &eth) {
  const u32 own = get_field(context, loopback_bits, 2);
  eth.own_unicast = (own & own_unicast) != 0;
  eth.own_multicast = (own & own_multicast) != 0;
}

}  // namespace

Status read_tir(const Command &c, EthQp &eth, TirTarget &target) {
  enum : u32 { direct = 0, indirect = 1 };
  if (c.in.size() < box_bytes) return Status::bad_input_length;
  const u8 *context = c.in.data() + context_at;
  const u32 type = get_field(context, type_bit, 4);
  if (type > indirect || get_field(context, tls_bit, 1) != 0 ||
      get_field(context, merge_bits, 4) != 0)
    return Status::bad_param;
  target.direct = type == direct;
  target.number = get_field(context, target.direct ? direct_rq : table_bits, 24);
  target.transport_domain = get_field(context, domain_bits, 24);
  eth.transport_domain = target.transport_domain;
  eth.offloads.tunnel = get_field(context, tunnel_bit, 1) != 0;
  read_loopback(context, eth);
  eth.rss = std::make_unique<Rss>();
  return target.direct ? Status::ok : read_hash(context, *eth.rss);
}

Status modify_tir(const Command &c, EthQp &eth) {
  constexpr u64 change_merge = 1 << 0, change_hash = 1 << 2, change_loopback = 1 << 4;
  if (c.in.size() < box_bytes) return Status::bad_input_length;
  const u8 *context = c.in.data() + context_at;
  const u64 mask = load_be64(c.in.data() + modify_mask_at);
  if ((mask & ~(change_merge | change_hash | change_loopback)) != 0 ||
      ((mask & change_merge) != 0 && get_field(context, merge_bits, 4) != 0))
    return Status::bad_param;
  if ((mask & change_hash) != 0)
    if (const Status s = read_hash(context, *eth.rss); s != Status::ok) return s;
  if ((mask & change_loopback) != 0) read_loopback(context, eth);
  return Status::ok;
}

Status read_rqt(const Command &c, const Capabilities &caps, std::vector<u32> &rqs) {
  constexpr u32 size_bits = 208, list_at = 240;
  if (c.in.size() < context_at + list_at) return Status::bad_input_length;
  const u8 *context = c.in.data() + context_at;
  const u32 count = get_field(context, size_bits, 16);
  // Hashes are cut to the logarithm.
  if (count == 0 || (count & (count - 1)) != 0 || count > caps.max_indirection_entries)
    return Status::bad_param;
  if (c.in.size() - context_at - list_at < u64{count} * 4) return Status::bad_input_length;
  for (u32 i = 0; i < count; ++i) rqs.push_back(load_be32(context + list_at + i * 4) & 0xffffff);
  return Status::ok;
}

}  // namespace softhca::firmware
