// From addresses to ports and paths: bind, resolve_addr, resolve_route. What
// neighbour discovery and the subnet manager answer on a real network stands
// in the registry and in the numbering of hosts, so answers come at once.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "cm/cm_state.h"
#include "model/device.h"
#include "uverbs/privilege.h"

namespace softhca::cm {

namespace {

constexpr u16 first_unprivileged_port = 1024;
// Service IDs of the port spaces in native addresses: the port is added.
constexpr u64 port_space_mask = 0xffffffffffff0000;
constexpr u8 rate_100_gbps = 16;  // enum ib_rate
constexpr u8 ib_lifetime = 18;    // OpenSM's default
constexpr u8 roce_lifetime = 16;  // CMA_IBOE_PACKET_LIFETIME
constexpr u8 ip_hop_limit = 64;
constexpr u32 udp_qkey = 0x01234567;  // RDMA_UDP_QKEY
constexpr u32 ipoib_qkey = 0x0b1b;    // of the broadcast group

bool known_family(u16 family) {
  return family == AF_INET || family == AF_INET6 || family == family_ib;
}

// cma_select_ib_ps: the port space that a native address names, completed in
// the address; 0 when the id's own does not go with it.
u16 native_port_space(const Id &id, Address &address) {
  SockaddrIb sib = address.ib();
  const u64 mask = swap64(sib.service_mask) & port_space_mask;
  const u64 service = swap64(sib.service) & mask;
  const bool any_space = id.port_space == RDMA_PS_IB;
  u16 space = 0;
  for (const u16 candidate : {RDMA_PS_IB, RDMA_PS_TCP, RDMA_PS_UDP}) {
    const bool allowed = any_space || (candidate != RDMA_PS_IB && id.port_space == candidate);
    if (!allowed || service != ((u64{candidate} << 16) & mask)) continue;
    space = candidate;
    break;
  }
  if (space == 0) return 0;
  sib.service = swap64(u64{space} << 16 | address.port());
  sib.service_mask = swap64(port_space_mask | swap64(sib.service_mask));
  address.set_ib(sib);
  return space;
}

int reserve_port(Id &id, Address &source) {
  const u16 space = source.family() == family_ib ? native_port_space(id, source) : id.port_space;
  if (space == 0) return EPROTONOSUPPORT;
  const u16 port = source.port();
  if (port != 0 && port < first_unprivileged_port && !uverbs::has_capability(CAP_NET_BIND_SERVICE))
    return EACCES;
  Binding b;
  b.owner = id.comm_id;
  b.port_space = space;
  b.port = port;
  b.address = source;
  b.reuse = id.reuse;
  b.family_only = id.family_only;
  if (const int error = bind_port(b); error != 0) return error;
  source.set_port(b.port);
  b.address = source;
  id.binding = b;
  id.has_port = true;
  return 0;
}

// Port and source address for a destination on another host, the one with the
// same place in its host first.
const Station *way_to(const Station &remote) {
  const Station *same = local_station(remote.device, remote.port);
  if (same != nullptr && same->same_network(remote)) return same;
  for (const Station &s : local_stations())
    if (s.active && s.same_network(remote)) return &s;
  return nullptr;
}

void leave_by(Id &id, const Station &port) {
  id.port = &port;
  id.source.set_host(id.source.family() == AF_INET ? port.ip : port.gid);
}

// The port behind an address, as its host announced it or as the numbering of
// the hosts has it. Our own addresses were found before: what the numbering
// says of this host does not exist.
bool look_up(const Address &to, const Station &like, Station &out) {
  if (find_station(to.host(), like, out)) return true;
  const auto presumed = presumed_station(to, like);
  if (!presumed || presumed->host == config().host) return false;
  out = *presumed;
  return true;
}

// A port of a host that has not announced itself is presumed to be of the same
// link layer as that with the same numbers here.
bool find_remote(const Id &id, Station &out) {
  if (id.port != nullptr) return look_up(id.destination, *id.port, out);
  bool found = false;
  for (const Station &s : local_stations()) {
    Station candidate;
    if (!s.active || !look_up(id.destination, s, candidate)) continue;
    const bool same = s.device == candidate.device && s.port == candidate.port;
    if (!found || same) out = candidate;
    found = true;
  }
  return found;
}

// 0, or the (positive) status of ADDR_ERROR.
int resolve_ip(Id &id) {
  if (id.destination.multicast()) {
    if (id.port == nullptr) leave_by(id, *first_active());
    id.remote = {};
    return 0;
  }
  if (const Station *own = owner_of(id.destination)) {
    if (id.port != nullptr && !id.port->same_network(*own)) return ENETUNREACH;
    id.remote = *own;
    if (id.port == nullptr) {
      id.port = own;
      id.source.set_host(id.destination.host());
    }
    return 0;
  }
  if (!find_remote(id, id.remote)) return id.port != nullptr ? ENETUNREACH : ENODEV;
  if (id.port != nullptr) return 0;
  const Station *port = way_to(id.remote);
  if (port == nullptr) return ENODEV;
  leave_by(id, *port);
  return 0;
}

// cma_resolve_ib_dev: our port with the GID itself, or else one in its subnet.
const Station *port_to_gid(const Ip &gid) {
  const Station *same_subnet = nullptr;
  for (const Station &s : local_stations()) {
    if (s.ethernet) continue;
    if (s.gid == gid) return &s;
    if (same_subnet == nullptr && s.active &&
        std::equal(gid.begin(), gid.begin() + 8, s.gid.begin()))
      same_subnet = &s;
  }
  return same_subnet;
}

int resolve_native(Id &id) {
  const Ip gid = id.destination.host();
  if (id.port == nullptr) {
    const Station *port = port_to_gid(gid);
    if (port == nullptr) return ENODEV;
    leave_by(id, *port);
  }
  // The path query fails for a GID that no port has.
  id.remote = {};
  if (const Station *own = station_with_gid(gid)) id.remote = *own;
  else look_up(id.destination, *id.port, id.remote);
  return 0;
}

}  // namespace

int bind_id(Id &id, const Address &wanted) {
  if (!known_family(wanted.family())) return EAFNOSUPPORT;
  if (id.state != IdState::idle) return EINVAL;
  if (wanted.link_local() && wanted.scope() == 0) return EINVAL;
  const Station *port = nullptr;
  if (!wanted.any()) {
    port = owner_of(wanted);
    if (port == nullptr) return wanted.family() == family_ib ? ENODEV : EADDRNOTAVAIL;
    if (wanted.family() == family_ib && port->ethernet) return ENODEV;
  }
  // net.ipv6.bindv6only is off by default.
  if (!id.family_only_set) id.family_only = wanted.family() == AF_INET;
  Address source = wanted;
  if (const int error = reserve_port(id, source); error != 0) return error;
  id.source = source;
  id.destination = Address::any(source.family());
  id.port = port;
  id.state = IdState::bound;
  return 0;
}

int resolve_address(Id &id, const Address &source, const Address &destination) {
  if (id.state == IdState::idle) {
    Address from = source;
    if (from.family() == 0) {
      from = Address::any(destination.family());
      if (destination.family() == family_ib) {
        SockaddrIb sib = from.ib();
        sib.pkey = destination.ib().pkey;
        from.set_ib(sib);
      }
    }
    // What the kernel takes from the destination: the interface of a
    // link-local address.
    if (const int error = bind_id(id, from); error != 0) return error;
  }
  if (id.source.family() != destination.family() || id.state != IdState::bound) return EINVAL;
  if (first_active() == nullptr) return ENODEV;
  id.destination = destination;
  int status = 0;
  if (destination.any()) {
    if (id.port == nullptr) {
      id.port = first_active();
      id.source.set_loopback();
    }
    id.remote = *id.port;
  } else if (destination.family() == family_ib) {
    if (const int error = resolve_native(id); error != 0) return error;
  } else {
    status = resolve_ip(id);
  }
  if (status == 0) id.state = IdState::address_resolved;
  post_event(id, status == 0 ? EventType::addr_resolved : EventType::addr_error, -status);
  return 0;
}

int resolve_route(Id &id) {
  if (id.state != IdState::address_resolved) return EINVAL;
  const Station &from = *id.port, &to = id.remote;
  if (to.host == 0) {
    post_event(id, EventType::route_error, -EINVAL);
    return 0;
  }
  Path p;
  p.sgid = from.route_gid(id.source.family());
  p.dgid = to.route_gid(id.source.family());
  p.mtu = std::min(from.mtu, to.mtu);
  p.rate = rate_100_gbps;
  if (from.ethernet) {
    p.global = 1;
    p.hop_limit = id.destination.family() == family_ib ? u8{1} : ip_hop_limit;
    p.traffic_class = id.tos_set ? id.tos : u8{0};
    p.lifetime =
        id.timeout_set && id.timeout != 0 ? static_cast<u8>(id.timeout - 1) : roce_lifetime;
  } else {
    p.slid = from.lid;
    p.dlid = to.lid;
    p.lifetime = ib_lifetime;
  }
  id.path = p;
  id.has_path = true;
  id.state = IdState::route_resolved;
  post_event(id, EventType::route_resolved, 0);
  return 0;
}

// A path that user space has found out itself (rdma_set_ib_path).
int set_path(Id &id, const Path &path) {
  if (id.state != IdState::address_resolved) return EINVAL;
  id.path = path;
  id.path.global = id.port->ethernet || path.hop_limit > 1;
  id.has_path = true;
  id.state = IdState::route_resolved;
  post_event(id, EventType::route_resolved, 0);
  return 0;
}

u8 gid_index(const Station &port, const Ip &gid) {
  const auto &table = process().devices[port.device].gids[port.port - 1u];
  u8 found = 0;
  for (size_t i = 0; i < table.size(); ++i) {
    if (!table[i].valid || table[i].gid != gid) continue;
    found = static_cast<u8>(i);
    if (table[i].type != GidType::roce_v1) break;  // version 2 stands behind version 1
  }
  return found;
}

ib_uverbs_ah_attr address_handle(const Station &port, const Path &path) {
  ib_uverbs_ah_attr a{};
  a.port_num = port.port;
  a.dlid = path.dlid;
  a.sl = path.sl;
  a.static_rate = path.rate;
  if (!path.global) return a;
  a.is_global = 1;
  std::copy(path.dgid.begin(), path.dgid.end(), a.grh.dgid);
  a.grh.flow_label = path.flow_label;
  a.grh.sgid_index = gid_index(port, path.sgid);
  a.grh.hop_limit = path.hop_limit;
  a.grh.traffic_class = path.traffic_class;
  return a;
}

int set_qkey(Id &id, u32 qkey) {
  if (id.qkey != 0) return qkey != 0 && qkey != id.qkey ? EINVAL : 0;
  if (qkey != 0) id.qkey = qkey;
  else id.qkey = id.port_space == RDMA_PS_IPOIB ? ipoib_qkey : udp_qkey;
  return 0;
}

}  // namespace softhca::cm
