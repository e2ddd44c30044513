// Flow rules on raw match parameters (mlx5dv_create_flow_matcher, mlx5dv_create_flow;
// kernel: mlx5/fs.c).
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include <algorithm>

#include "uverbs/dispatch.h"
#include "uverbs/flow.h"
#include "uverbs/privilege.h"

namespace softhca::uverbs {

namespace {

// struct mlx5_ifc_fte_match_param: sets of 64 bytes.
constexpr u32 set_bytes = 64, outer_at = 0, misc_at = 64, inner_at = 128, known_bytes = 192;
constexpr u32 max_match_bytes = 512;
constexpr u8 criteria_outer = 1, criteria_misc = 2, criteria_inner = 4;

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
  constexpr u32 smac = 0, ether_type = 6, dmac = 8, vlan = 14, protocol = 16, traffic_class = 17,
                bits = 18, tcp_ports = 20, udp_ports = 28, src_ip = 32, dst_ip = 48,
                ipv4_in_ip = 12;
  constexpr u8 cvlan_bit = 0x80, ip_version_bits = 0x1e;
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

// fte_match_set_misc: of it, the number of a VXLAN network.
int read_misc(const u8 *v, const u8 *m, FlowRule &rule) {
  constexpr u32 vxlan_vni = 20;
  Fields f(v, m);
  if (f.take(vxlan_vni, rule.value.vni, rule.mask.vni, 1, 3)) {
    rule.value.tunnel = 1;
    rule.mask.tunnel = 0xff;
  }
  return f.all_taken() ? 0 : EOPNOTSUPP;
}

// Both parameters have max_match_bytes.
int read_match(const std::vector<u8> &value, const std::vector<u8> &mask, FlowRule &rule) {
  if (std::any_of(mask.begin() + known_bytes, mask.end(), [](u8 b) { return b != 0; }))
    return EOPNOTSUPP;
  const u8 *v = value.data(), *m = mask.data();
  if (const int error = read_layer(v + outer_at, m + outer_at, rule.value.outer, rule.mask.outer);
      error != 0)
    return error;
  if (const int error = read_misc(v + misc_at, m + misc_at, rule); error != 0) return error;
  if (const int error = read_layer(v + inner_at, m + inner_at, rule.value.inner, rule.mask.inner);
      error != 0)
    return error;
  const bool inner =
      std::any_of(m + inner_at, m + inner_at + set_bytes, [](u8 b) { return b != 0; });
  if (inner) {
    rule.value.tunnel = 1;
    rule.mask.tunnel = 0xff;
  }
  return 0;
}

int read_parameters(const Attrs &attrs, u16 id, std::vector<u8> &out) {
  if (attrs.length(id) > max_match_bytes) return EINVAL;
  if (const int error = attrs.bytes(id, out); error != 0) return error;
  out.resize(max_match_bytes);
  return 0;
}

int create_matcher(File &file, Attrs &attrs) {
  constexpr u32 dont_trap = 1 << 1, egress = 1 << 2;  // ib_flow_flags
  constexpr u16 last_priority = 15;
  auto object = std::make_unique<MatcherObject>(file);
  if (const int error = read_parameters(attrs, MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK, object->mask);
      error != 0)
    return error;
  u16 priority = 0;
  u8 criteria = 0;
  u32 flags = 0;
  u64 table = MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_RX;
  if (const int error = attrs.in(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE, priority); error != 0)
    return error;
  if (const int error = attrs.in(MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA, criteria); error != 0)
    return error;
  if (const int error =
          attrs.flags(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_FLAGS, dont_trap | egress, flags);
      error != 0)
    return error;
  attrs.constant(MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE, table);
  // Only what arrives can be steered, and only by headers.
  if (!file.caps().raw_ethernet || table != MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_RX ||
      (flags & egress) != 0 || (criteria & ~(criteria_outer | criteria_misc | criteria_inner)) != 0)
    return EOPNOTSUPP;
  if (priority > last_priority) return EINVAL;
  FlowRule probe;
  if (read_match(object->mask, object->mask, probe) == EOPNOTSUPP) return EOPNOTSUPP;
  object->rule.priority = priority;
  object->rule.dont_trap = (flags & dont_trap) != 0;
  return commit(file, attrs, MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE, std::move(object));
}

int destroy_matcher(File &file, Attrs &attrs) {
  return destroy(file, attrs, MLX5_IB_ATTR_FLOW_MATCHER_DESTROY_HANDLE);
}

int create_flow(File &file, Attrs &attrs) {
  constexpr u32 max_tag = 1u << 24;
  if (!has_capability(CAP_NET_RAW)) return EPERM;
  auto *matcher = attrs.object<MatcherObject>(MLX5_IB_ATTR_CREATE_FLOW_MATCHER);
  auto *qp = attrs.object<QpObject>(MLX5_IB_ATTR_CREATE_FLOW_DEST_QP);
  u32 flags = 0;
  if (const int error = attrs.flags(
          MLX5_IB_ATTR_CREATE_FLOW_FLAGS,
          MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DEFAULT_MISS | MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DROP, flags);
      error != 0)
    return error;
  // Destinations and actions made by firmware command cannot be made here.
  if (attrs.has(MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX) ||
      attrs.has(MLX5_IB_ATTR_CREATE_FLOW_ARR_FLOW_ACTIONS) ||
      attrs.has(MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX) ||
      (flags & MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DEFAULT_MISS) != 0)
    return EOPNOTSUPP;
  const bool drop = (flags & MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DROP) != 0;
  if (drop == (qp != nullptr)) return EINVAL;  // one destination
  if (qp != nullptr && qp->qp->type != QpType::raw_packet) return EINVAL;
  std::vector<u8> value;
  if (const int error = read_parameters(attrs, MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE, value);
      error != 0)
    return error;

  FlowRule rule = matcher->rule;
  rule.device = file.device_number;
  rule.port = qp != nullptr ? std::max<u8>(qp->qp->attr.port, 1) : u8{1};
  rule.qp = qp != nullptr ? qp->qp : nullptr;
  rule.drop = drop;
  rule.has_tag = attrs.in(MLX5_IB_ATTR_CREATE_FLOW_TAG, rule.tag) == 0;
  if (rule.tag >= max_tag) return EINVAL;
  if (const int error = read_match(value, matcher->mask, rule); error != 0) return error;
  if (!file.device().ethernet(rule.port)) return EOPNOTSUPP;
  auto flow = std::make_unique<FlowObject>(file, qp);
  flow->matcher.reset(matcher);
  if (const int error = flow->add(rule); error != 0) return error;
  return commit(file, attrs, MLX5_IB_ATTR_CREATE_FLOW_HANDLE, std::move(flow));
}

int destroy_flow(File &file, Attrs &attrs) {
  return destroy(file, attrs, MLX5_IB_ATTR_DESTROY_FLOW_HANDLE);
}

constexpr AttrSpec matcher_specs[] = {
    created(MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE),
    in_bytes(MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK, 1),
    in<u16>(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE),  // of an enumeration; normal rules are 0
    in<u8>(MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA),
    flags(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_FLAGS),
    constant(MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE).optional(),
};
constexpr AttrSpec destroy_matcher_specs[] = {
    destroyed(MLX5_IB_ATTR_FLOW_MATCHER_DESTROY_HANDLE, ObjectClass::flow_matcher)};
constexpr AttrSpec flow_specs[] = {
    created(MLX5_IB_ATTR_CREATE_FLOW_HANDLE),
    in_bytes(MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE, 1),
    object(MLX5_IB_ATTR_CREATE_FLOW_MATCHER, ObjectClass::flow_matcher),
    object(MLX5_IB_ATTR_CREATE_FLOW_DEST_QP, ObjectClass::qp).optional(),
    object(MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX, ObjectClass::devx_object).optional(),
    in_bytes(MLX5_IB_ATTR_CREATE_FLOW_ARR_FLOW_ACTIONS, 0).optional(),
    in<u32>(MLX5_IB_ATTR_CREATE_FLOW_TAG).optional(),
    in_bytes(MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX, 0).optional(),
    in_bytes(MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX_OFFSET, 0).optional(),
    flags(MLX5_IB_ATTR_CREATE_FLOW_FLAGS),
};
constexpr AttrSpec destroy_flow_specs[] = {
    destroyed(MLX5_IB_ATTR_DESTROY_FLOW_HANDLE, ObjectClass::flow)};
constexpr Method methods[] = {
    {MLX5_IB_OBJECT_FLOW_MATCHER, MLX5_IB_METHOD_FLOW_MATCHER_CREATE, "FLOW_MATCHER/CREATE",
     create_matcher, matcher_specs},
    {MLX5_IB_OBJECT_FLOW_MATCHER, MLX5_IB_METHOD_FLOW_MATCHER_DESTROY, "FLOW_MATCHER/DESTROY",
     destroy_matcher, destroy_matcher_specs},
    {UVERBS_OBJECT_FLOW, MLX5_IB_METHOD_CREATE_FLOW, "FLOW/CREATE", create_flow, flow_specs},
    {UVERBS_OBJECT_FLOW, MLX5_IB_METHOD_DESTROY_FLOW, "FLOW/DESTROY", destroy_flow,
     destroy_flow_specs},
};

}  // namespace

constinit const Family matcher_family = {methods, {}};

}  // namespace softhca::uverbs
