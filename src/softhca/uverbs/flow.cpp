// Flow rules (core/uverbs_cmd.c ib_uverbs_ex_create_flow, then
// mlx5_ib_create_flow), checks in their order.
#include "uverbs/flow.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include <algorithm>

#include "model/eth_flow.h"
#include "uverbs/dispatch.h"
#include "uverbs/privilege.h"

namespace softhca::uverbs {

namespace {

// enum ib_flow_attr_type and ib_flow_flags.
enum FlowType : u32 { type_normal, type_all_default, type_mc_default, type_sniffer };
constexpr u32 flag_dont_trap = 1 << 1, flag_egress = 1 << 2, flags_end = 1 << 3;
constexpr u32 max_specs = 10, max_tag = 1u << 24;
constexpr u32 last_priority = 15;

// enum ib_flow_spec_type.
enum SpecType : u32 {
  spec_eth = 0x20,
  spec_ipv4 = 0x30,
  spec_ipv6 = 0x31,
  spec_esp = 0x34,
  spec_tcp = 0x40,
  spec_udp = 0x41,
  spec_vxlan = 0x50,
  spec_gre = 0x51,
  spec_mpls = 0x60,
  spec_inner = 0x100,
  spec_tag = 0x1000,
  spec_drop = 0x1001,
  spec_handle = 0x1002,
  spec_count = 0x1003,
};

// A field of the rule under a mask, big-endian bytes as in the packet.
template <size_t n>
void match(u8 (&value)[n], u8 (&mask)[n], const void *v, const void *m) {
  std::memcpy(value, v, n);
  std::memcpy(mask, m, n);
}
void match(u8 &value, u8 &mask, u8 v, u8 m) {
  value = v;
  mask = m;
}
template <size_t n>
void match_prefix(u8 (&value)[n], u8 (&mask)[n], const void *v, const void *m, size_t bytes) {
  std::memcpy(value, v, bytes);
  std::memcpy(mask, m, bytes);
}

// A protocol once named must not be contradicted by a further specification.
int match_protocol(FlowLayerKey &value, FlowLayerKey &mask, u8 v, u8 m) {
  if (m == 0) return 0;
  if (mask.protocol != 0 && (mask.protocol != m || value.protocol != v)) return EINVAL;
  match(value.protocol, mask.protocol, v, m);
  return 0;
}

// The IP version a specification implies against what others have said.
int match_version(FlowLayerKey &value, FlowLayerKey &mask, u8 version) {
  if (mask.ip_version != 0 && value.ip_version != version) return EINVAL;
  match(value.ip_version, mask.ip_version, version, 0xff);
  return 0;
}

int add_eth(const ib_uverbs_flow_spec_eth &s, FlowLayerKey &value, FlowLayerKey &mask) {
  match(value.dst_mac, mask.dst_mac, s.val.dst_mac, s.mask.dst_mac);
  match(value.src_mac, mask.src_mac, s.val.src_mac, s.mask.src_mac);
  match(value.ether_type, mask.ether_type, &s.val.ether_type, &s.mask.ether_type);
  if (s.mask.vlan_tag == 0) return 0;
  match(value.vlan_tci, mask.vlan_tci, &s.val.vlan_tag, &s.mask.vlan_tag);
  match(value.cvlan, mask.cvlan, 1, 0xff);
  return 0;
}

int add_ipv4(const ib_uverbs_flow_spec_ipv4 &s, FlowLayerKey &value, FlowLayerKey &mask) {
  if (s.mask.ttl != 0 || s.mask.flags != 0) return EOPNOTSUPP;
  match_prefix(value.src_ip, mask.src_ip, &s.val.src_ip, &s.mask.src_ip, 4);
  match_prefix(value.dst_ip, mask.dst_ip, &s.val.dst_ip, &s.mask.dst_ip, 4);
  match(value.traffic_class, mask.traffic_class, s.val.tos, s.mask.tos);
  if (const int error = match_version(value, mask, 4); error != 0) return error;
  return match_protocol(value, mask, s.val.proto, s.mask.proto);
}

int add_ipv6(const ib_uverbs_flow_spec_ipv6 &s, FlowLayerKey &value, FlowLayerKey &mask) {
  if (s.mask.hop_limit != 0 || s.mask.reserved != 0) return EOPNOTSUPP;
  match(value.src_ip, mask.src_ip, s.val.src_ip, s.mask.src_ip);
  match(value.dst_ip, mask.dst_ip, s.val.dst_ip, s.mask.dst_ip);
  match(value.traffic_class, mask.traffic_class, s.val.traffic_class, s.mask.traffic_class);
  match(value.flow_label, mask.flow_label, &s.val.flow_label, &s.mask.flow_label);
  constexpr u8 beyond_label = 0xf0;  // of the second byte: a label has 20 bits
  if ((value.flow_label[0] | mask.flow_label[0]) != 0 ||
      ((value.flow_label[1] | mask.flow_label[1]) & beyond_label) != 0)
    return EINVAL;
  if (const int error = match_version(value, mask, 6); error != 0) return error;
  return match_protocol(value, mask, s.val.next_hdr, s.mask.next_hdr);
}

int add_ports(const ib_uverbs_flow_spec_tcp_udp &s, FlowLayerKey &value, FlowLayerKey &mask) {
  constexpr u8 tcp = 6, udp = 17;
  match(value.dst_port, mask.dst_port, &s.val.dst_port, &s.mask.dst_port);
  match(value.src_port, mask.src_port, &s.val.src_port, &s.mask.src_port);
  const bool is_tcp = (s.type & ~u32{spec_inner}) == spec_tcp;
  return match_protocol(value, mask, is_tcp ? tcp : udp, 0xff);
}

int add_vxlan(const ib_uverbs_flow_spec_tunnel &s, FlowRule &rule) {
  match(rule.value.vni, rule.mask.vni, &s.val.tunnel_id, &s.mask.tunnel_id);
  if ((rule.value.vni[0] | rule.mask.vni[0]) != 0) return EINVAL;  // 24 bits
  match(rule.value.tunnel, rule.mask.tunnel, 1, 0xff);
  return 0;
}

// Calls `add` with an action as its type, if the size says so too.
template <class Spec, class Add>
int with(const u8 *bytes, u32 size, Add add) {
  if (size != sizeof(Spec)) return EINVAL;
  Spec s;
  std::memcpy(&s, bytes, sizeof s);
  return add(s);
}

// The same for a value and a mask behind a header. Both may be of an older,
// shorter form, as libibverbs sends the IPv4 one, or of a longer one whose mask is
// zero where nothing is known (spec_filter_size).
template <class Spec, class Add>
int with_filter(const u8 *bytes, u32 size, Add add) {
  constexpr size_t header = sizeof(ib_uverbs_flow_spec_hdr);
  Spec s{};
  const size_t given = (size - header) / 2, known = std::min(given, sizeof s.val);
  if (given == 0) return EINVAL;
  const u8 *mask = bytes + header + given;
  if (std::any_of(mask + known, mask + given, [](u8 b) { return b != 0; })) return EINVAL;
  std::memcpy(&s, bytes, header);
  std::memcpy(&s.val, bytes + header, known);
  std::memcpy(&s.mask, mask, known);
  return add(s);
}

int add_spec(u32 type, const u8 *bytes, u32 size, FlowRule &rule) {
  const bool inner = (type & spec_inner) != 0;
  FlowLayerKey &value = inner ? rule.value.inner : rule.value.outer;
  FlowLayerKey &mask = inner ? rule.mask.inner : rule.mask.outer;
  if (inner) match(rule.value.tunnel, rule.mask.tunnel, 1, 0xff);
  const auto layer = [&](auto add) {
    return [&, add](const auto &s) { return add(s, value, mask); };
  };
  switch (type) {
    case spec_eth:
    case spec_eth | spec_inner:
      return with_filter<ib_uverbs_flow_spec_eth>(bytes, size, layer(add_eth));
    case spec_ipv4:
    case spec_ipv4 | spec_inner:
      return with_filter<ib_uverbs_flow_spec_ipv4>(bytes, size, layer(add_ipv4));
    case spec_ipv6:
    case spec_ipv6 | spec_inner:
      return with_filter<ib_uverbs_flow_spec_ipv6>(bytes, size, layer(add_ipv6));
    case spec_tcp:
    case spec_tcp | spec_inner:
    case spec_udp:
    case spec_udp | spec_inner:
      return with_filter<ib_uverbs_flow_spec_tcp_udp>(bytes, size, layer(add_ports));
    case spec_vxlan:
      return with_filter<ib_uverbs_flow_spec_tunnel>(
          bytes, size, [&](const auto &s) { return add_vxlan(s, rule); });
    case spec_tag:
      return with<ib_uverbs_flow_spec_action_tag>(bytes, size, [&](const auto &s) {
        rule.has_tag = true;
        rule.tag = s.tag_id;
        return s.tag_id < max_tag && s.reserved1 == 0 ? 0 : EINVAL;
      });
    case spec_drop:
      return with<ib_uverbs_flow_spec_action_drop>(bytes, size, [&](const auto &) {
        rule.drop = true;
        return 0;
      });
    // Known to the kernel, and not to this device: other tunnels, and objects
    // that cannot be made here.
    case spec_esp:
    case spec_esp | spec_inner:
    case spec_gre:
    case spec_mpls:
    case spec_mpls | spec_inner:
    case spec_handle:
    case spec_count: return EOPNOTSUPP;
    default: return EINVAL;
  }
}

// A fully given Ethernet type must be that of the IP version matched
// (is_valid_ethertype).
bool consistent(const FlowLayerKey &value, const FlowLayerKey &mask) {
  if (mask.ip_version == 0 || load_be16(mask.ether_type) != 0xffff) return true;
  return load_be16(value.ether_type) == (value.ip_version == 4 ? ethertype_ipv4 : ethertype_ipv6);
}

// Specifications in `bytes`, which they fill exactly.
int read_specs(const std::vector<u8> &bytes, u32 count, FlowRule &rule) {
  size_t at = 0;
  for (u32 i = 0; i < count; ++i) {
    ib_uverbs_flow_spec_hdr h{};
    if (bytes.size() - at < sizeof h) return EINVAL;
    std::memcpy(&h, bytes.data() + at, sizeof h);
    if (h.reserved != 0 || h.size < sizeof h || h.size > bytes.size() - at) return EINVAL;
    if (const int error = add_spec(h.type, bytes.data() + at, h.size, rule); error != 0)
      return error;
    at += h.size;
  }
  if (at != bytes.size()) return EINVAL;
  return consistent(rule.value.outer, rule.mask.outer) &&
                 consistent(rule.value.inner, rule.mask.inner)
             ? 0
             : EINVAL;
}

// Values with bits that are not compared are refused where the driver enters a rule
// (check_valid_spec of mlx5_core).
bool within_masks(const FlowRule &rule) {
  const u8 *value = reinterpret_cast<const u8 *>(&rule.value),
           *mask = reinterpret_cast<const u8 *>(&rule.mask);
  for (size_t i = 0; i < sizeof rule.value; ++i)
    if ((value[i] & ~mask[i]) != 0) return false;
  return true;
}

// The rules that a request stands for. Defaults are one for each kind of
// address, so that "multicast" and "all" share what is multicast.
int add_rules(FlowObject &flow, u32 type, FlowRule rule) {
  if (type == type_normal) return flow.add(rule);
  FlowRule plain;
  plain.qp = rule.qp;
  plain.device = rule.device;
  plain.port = rule.port;
  plain.kind = type == type_sniffer ? FlowKind::sniffer : FlowKind::leftovers;
  if (type == type_sniffer) return flow.add(plain);
  plain.mask.outer.dst_mac[0] = plain.value.outer.dst_mac[0] = 1;
  if (const int error = flow.add(plain); error != 0 || type == type_mc_default) return error;
  plain.value.outer.dst_mac[0] = 0;
  return flow.add(plain);
}

int check_attr(const ib_uverbs_create_flow &req, size_t specs_bytes) {
  const ib_uverbs_flow_attr &a = req.flow_attr;
  if (req.comp_mask != 0) return EINVAL;
  if (!has_capability(CAP_NET_RAW)) return EPERM;
  if (a.flags >= flags_end) return EINVAL;
  const bool defaults = a.type == type_all_default || a.type == type_mc_default;
  if ((a.flags & flag_dont_trap) != 0 && defaults) return EINVAL;
  if (a.num_of_specs > max_specs || a.size > specs_bytes) return EINVAL;
  return a.reserved[0] != 0 || a.reserved[1] != 0 ? EINVAL : 0;
}

// What the driver checks, specifications read.
int check_driver(const File &file, const Attrs &attrs, const QpObject &qp,
                 const ib_uverbs_flow_attr &a) {
  mlx5_ib_create_flow driver{};
  if (attrs.length(UVERBS_ATTR_UHW_IN) != 0)
    if (const int error = driver_request(attrs, driver, sizeof driver, EOPNOTSUPP); error != 0)
      return error;
  if (driver.ncounters_data != 0 || driver.reserved != 0) return EINVAL;
  if (a.priority > last_priority) return ENOMEM;
  if (a.port > file.device().port_count() || (a.flags & ~(flag_dont_trap | flag_egress)) != 0)
    return EINVAL;
  if (a.type > type_sniffer) return EINVAL;
  if (!file.device().ethernet(std::max<u8>(a.port, 1)) || qp.qp->type != QpType::raw_packet)
    return EOPNOTSUPP;
  // Rules for what leaves are for IPsec, which is not there.
  return (a.flags & flag_egress) != 0 ? EOPNOTSUPP : 0;
}

int create_flow(File &file, Attrs &attrs) {
  std::vector<u8> in;
  if (const int error = attrs.bytes(UVERBS_ATTR_CORE_IN, in); error != 0) return error;
  ib_uverbs_create_flow req{};
  std::memcpy(&req, in.data(), sizeof req);
  const ib_uverbs_flow_attr &a = req.flow_attr;
  if (const int error = check_attr(req, in.size() - sizeof req); error != 0) return error;
  int error = 0;
  QpObject *qp = file.objects.get<QpObject>(req.qp_handle, error);
  if (qp == nullptr) return EINVAL;
  if (qp->qp->type != QpType::ud && qp->qp->type != QpType::raw_packet) return EINVAL;

  FlowRule rule;
  rule.qp = qp->qp;
  rule.device = file.device_number;
  rule.port = std::max<u8>(a.port, 1);
  rule.priority = a.priority;
  rule.dont_trap = (a.flags & flag_dont_trap) != 0;
  const auto specs = in.begin() + sizeof req;
  if (error = read_specs({specs, specs + a.size}, a.num_of_specs, rule); error != 0) return error;
  if (error = check_driver(file, attrs, *qp, a); error != 0) return error;
  if ((rule.drop && rule.dont_trap) || !within_masks(rule)) return EINVAL;

  auto flow = std::make_unique<FlowObject>(file, qp);
  if (error = add_rules(*flow, a.type, rule); error != 0) return error;
  const ib_uverbs_create_flow_resp resp{0, file.objects.reserve()};
  if (error = respond(attrs, resp); error != 0) return error;
  file.objects.insert(resp.flow_handle, std::move(flow));
  return 0;
}

int destroy_flow(File &file, Attrs &attrs) {
  return destroy(file, attrs, UVERBS_ATTR_DESTROY_FLOW_HANDLE);
}

int destroy_flow_write(File &file, Attrs &attrs) {
  ib_uverbs_destroy_flow req{};
  if (const int error = request(attrs, req); error != 0) return error;
  if (req.comp_mask != 0) return EINVAL;
  int error = 0;
  FlowObject *flow = file.objects.get<FlowObject>(req.flow_handle, error);
  return flow != nullptr ? file.objects.destroy(flow) : error;
}

constexpr AttrSpec destroy_specs[] = {
    destroyed(UVERBS_ATTR_DESTROY_FLOW_HANDLE, ObjectClass::flow)};
constexpr Method methods[] = {
    {UVERBS_OBJECT_FLOW, UVERBS_METHOD_FLOW_DESTROY, "FLOW/DESTROY", destroy_flow, destroy_specs},
};
constexpr u32 extended = IB_USER_VERBS_CMD_FLAG_EXTENDED;
constexpr WriteCommand commands[] = {
    {extended | IB_USER_VERBS_EX_CMD_CREATE_FLOW, "WRITE/EX_CREATE_FLOW",
     sizeof(ib_uverbs_create_flow), sizeof(ib_uverbs_create_flow_resp), create_flow},
    {extended | IB_USER_VERBS_EX_CMD_DESTROY_FLOW, "WRITE/EX_DESTROY_FLOW",
     sizeof(ib_uverbs_destroy_flow), 0, destroy_flow_write},
};

}  // namespace

constinit const Family flow_family = {methods, commands};

}  // namespace softhca::uverbs
