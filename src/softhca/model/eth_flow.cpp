#include "model/eth_flow.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <tuple>
#include <utility>
#include <vector>

#include "base/log.h"
#include "config/identity.h"
#include "model/device.h"
#include "model/eth_queue.h"
#include "model/flow_table.h"

namespace softhca {

namespace {

// Levels of evaluation. Sniffers see everything first; then per priority the
// rules that do not trap, then the others; then rules for multicast addresses
// alone, whatever their priority; then the defaults.
constexpr u32 sniffer_level = 0, first_normal_level = 1, multicast_level = 1000,
              leftovers_level = 2000;

struct Steering {
  std::vector<FlowRule *> rules;  // in the order of evaluation
  u64 next_group = 1;
};

Steering &steering() {
  static Steering &s = *new Steering;
  return s;
}

const u8 *bytes_of(const FlowKey &k) { return reinterpret_cast<const u8 *>(&k); }

bool same(const FlowKey &a, const FlowKey &b) { return std::memcmp(&a, &b, sizeof a) == 0; }

bool same_table(const FlowRule &a, const FlowRule &b) {
  return a.device == b.device && a.port == b.port && a.level == b.level;
}

// One entry of a flow table can have several destinations.
bool same_entry(const FlowRule &a, const FlowRule &b) {
  return same_table(a, b) && same(a.mask, b.mask) && same(a.value, b.value);
}

// Matches nothing but a destination address that is multicast (the driver's
// flow_is_multicast_only).
bool multicast_only(const FlowRule &r) {
  FlowKey rest = r.mask;
  std::memset(rest.outer.dst_mac, 0, sizeof rest.outer.dst_mac);
  return same(rest, FlowKey{}) && (r.mask.outer.dst_mac[0] & r.value.outer.dst_mac[0] & 1) != 0;
}

u32 level_of(const FlowRule &r) {
  if (r.kind == FlowKind::sniffer) return sniffer_level;
  if (r.kind == FlowKind::leftovers) return leftovers_level;
  if (!r.dont_trap && multicast_only(r)) return multicast_level;
  return first_normal_level + r.priority * 2 + (r.dont_trap ? 0 : 1);
}

auto order_of(const FlowRule *r) { return std::tie(r->device, r->port, r->level, r->group); }

bool names_destination(const FlowRule &r) {
  return std::all_of(std::begin(r.mask.outer.dst_mac), std::end(r.mask.outer.dst_mac),
                     [](u8 b) { return b == 0xff; });
}

// An adapter does not hand unicast frames back to the host that sent them,
// unless the address is one of its own: the port's, or one that a rule names.
bool loops_back(const FlowRule &r, const EthFrame &f) {
  const bool multicast = (f.data[0] & 1) != 0;
  if (multicast) return r.qp == nullptr || !r.qp->block_multicast_loopback;
  if (r.kind == FlowKind::sniffer || names_destination(r)) return true;
  return std::memcmp(port_mac(config(), r.device, r.port).data(), f.data, 6) == 0;
}

// Appends whom the rules of one port, [first, last) in order, send a frame to.
void steer(size_t first, size_t last, const EthFrame &f, const FlowKey &key, bool own,
           std::vector<FlowDelivery> &out) {
  const auto &rules = steering().rules;
  for (size_t i = first; i < last; ++i) {
    const FlowRule &r = *rules[i];
    if (!flow_matches(r.value, r.mask, key) || (own && !loops_back(r, f))) continue;
    if (r.kind == FlowKind::sniffer || r.dont_trap) {
      out.push_back({r.qp, r.tag});
      continue;
    }
    if (r.drop) return;
    // All destinations of this entry, each once, and nothing behind it.
    const size_t begin = out.size();
    for (size_t j = i; j < last && rules[j]->level == r.level; ++j) {
      const FlowRule &other = *rules[j];
      const bool known = std::any_of(out.begin() + static_cast<std::ptrdiff_t>(begin), out.end(),
                                     [&](const FlowDelivery &d) { return d.qp == other.qp; });
      if (!known && same_entry(r, other)) out.push_back({other.qp, other.tag});
    }
    return;
  }
}

// The queue of this process that a frame came from, unless it has gone.
const Qp *sender_of(const PacketHeader &h) {
  const auto it = process().qps.find(h.src_qpn);
  return it != process().qps.end() && it->second->eth ? it->second : nullptr;
}

void fill_layer(const EthFrame &f, const EthLayers &l, FlowLayerKey &k) {
  const u8 *d = f.data;
  std::memcpy(k.dst_mac, d + l.l2, 6);
  std::memcpy(k.src_mac, d + l.l2 + 6, 6);
  store_be16(k.ether_type, l.ether_type);
  if (l.cvlan || l.svlan) {
    k.svlan = l.svlan ? 1 : 0;
    k.cvlan = 1 - k.svlan;
    store_be16(k.vlan_tci, l.vlan_tci);
  }
  const u8 *ip = d + l.l3;
  k.protocol = l.protocol;
  if (l.l3_type == L3::ipv4) {
    k.ip_version = 4;
    k.traffic_class = ip[1];
    std::memcpy(k.src_ip, ip + 12, 4);
    std::memcpy(k.dst_ip, ip + 16, 4);
  } else if (l.l3_type == L3::ipv6) {
    k.ip_version = 6;
    k.traffic_class = static_cast<u8>(load_be16(ip) >> 4);
    store_be32(k.flow_label, load_be32(ip) & 0xfffff);
    std::memcpy(k.src_ip, ip + 8, 16);
    std::memcpy(k.dst_ip, ip + 24, 16);
  }
  if (l.has_ports) {
    std::memcpy(k.src_port, d + l.l4, 2);
    std::memcpy(k.dst_port, d + l.l4 + 2, 2);
  }
}

}  // namespace

FlowKey flow_key(const EthFrame &f) {
  FlowKey k{};
  fill_layer(f, f.outer, k.outer);
  if (!f.tunnel) return k;
  k.tunnel = 1;
  store_be32(k.vni, f.vni);
  fill_layer(f, f.inner, k.inner);
  return k;
}

bool flow_matches(const FlowKey &value, const FlowKey &mask, const FlowKey &frame) {
  const u8 *k = bytes_of(frame), *m = bytes_of(mask), *v = bytes_of(value);
  for (size_t i = 0; i < sizeof frame; ++i)
    if ((k[i] & m[i]) != v[i]) return false;
  return true;
}

void flow_announce() {
  const bool tables = flow_root(FlowRoot::receive) != nullptr ||
                      flow_root(FlowRoot::sniff_received) != nullptr ||
                      flow_root(FlowRoot::sniff_sent) != nullptr;
  if (Fabric *fabric = process().fabric)
    fabric->set_flow_rules(static_cast<u32>(steering().rules.size()) + (tables ? 1 : 0));
}

int flow_add(FlowRule &rule) {
  Steering &s = steering();
  for (size_t i = 0; i < sizeof(FlowKey); ++i)
    reinterpret_cast<u8 *>(&rule.value)[i] &= reinterpret_cast<const u8 *>(&rule.mask)[i];
  rule.level = level_of(rule);
  rule.group = 0;
  for (const FlowRule *r : s.rules) {
    if (!same_table(*r, rule) || !same(r->mask, rule.mask)) continue;
    rule.group = r->group;
    if (!same(r->value, rule.value)) continue;
    if (r->drop != rule.drop || (rule.has_tag && r->tag != rule.tag)) return EEXIST;
  }
  if (rule.group == 0) rule.group = s.next_group++;
  const auto at = std::upper_bound(s.rules.begin(), s.rules.end(), &rule,
                                   [](auto *a, auto *b) { return order_of(a) < order_of(b); });
  s.rules.insert(at, &rule);
  flow_announce();
  return 0;
}

void flow_remove(FlowRule &rule) {
  if (std::erase(steering().rules, &rule) != 0) flow_announce();
}

void flow_forget() { steering().rules.clear(); }

namespace {

// A frame that no rule wants is of another port.
void count_arrivals(const std::vector<FlowDelivery> &deliveries, const PacketHeader &h,
                    const u8 *frame) {
  std::array<bool, max_devices * max_ports> counted{};
  for (const FlowDelivery &d : deliveries) {
    const u32 port = std::max<u8>(d.qp->attr.port, 1);
    bool &before = counted[d.qp->device->number * max_ports + port - 1];
    if (!std::exchange(before, true)) count_received(*d.qp->device, port, h, frame);
  }
}

}  // namespace

bool receive_frame(const PacketHeader &h, const u8 *payload, u64 now_ns) {
  if (h.payload < eth_header_bytes) return true;
  const EthFrame frame = parse_frame(payload, h.payload);
  const FlowKey key = flow_key(frame);
  const bool own_process = h.src_slot == process().fabric->slot();
  static auto &deliveries = *new std::vector<FlowDelivery>;  // keeps its room
  deliveries.clear();
  const auto &rules = steering().rules;
  for (size_t first = 0; first < rules.size();) {
    size_t last = first + 1;
    const FlowRule &r = *rules[first];
    while (last < rules.size() && rules[last]->device == r.device && rules[last]->port == r.port)
      ++last;
    if (process().devices[r.device].up(r.port))
      steer(first, last, frame, key, own_process, deliveries);
    first = last;
  }
  const Qp *sender = own_process ? sender_of(h) : nullptr;
  if (process().devices.front().up(1) && (sender != nullptr || !own_process))
    steer_by_tables(frame, key, sender, deliveries);
  for (const FlowDelivery &d : deliveries)
    if (frame_must_wait(*d.qp, frame, now_ns)) return false;
  count_arrivals(deliveries, h, payload);
  for (const FlowDelivery &d : deliveries) deliver_frame(*d.qp, frame, d.tag);
  return true;
}

}  // namespace softhca
