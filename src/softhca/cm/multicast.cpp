// Multicast groups of UD ids. A group is its GID; the subnet manager's part,
// choosing a multicast LID and keeping members, needs no more than that every
// process comes to the same result.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "cm/cm_state.h"
#include "config/config.h"
#include "firmware/subnet_administrator.h"
#include "wire/packet.h"

namespace softhca::cm {

namespace {

constexpr u8 rate_100_gbps = 16;

// ip_ib_mc_map and ipv6_ib_mc_map: scope 2 and the default partition, as the
// broadcast address of an IPoIB interface has them. With the UDP port space
// the signature says RDMA CM instead of IP.
Ip infiniband_group(const Id &id, const Address &address) {
  const Ip ip = address.host();
  if (address.family() == family_ib) return ip;
  const bool v4 = address.family() == AF_INET;
  // Already the MGID of a group that the subnet manager has named.
  if (!v4 && ip[0] == 0xff && (ip[1] & 0xf0) == 0x10 && ip[2] == 0xa0 && ip[3] == 0x1b) return ip;
  Ip gid{};
  gid[0] = 0xff;
  gid[1] = 0x12;
  gid[2] = v4 ? 0x40 : 0x60;
  gid[3] = id.port_space == RDMA_PS_UDP ? 0x01 : 0x1b;
  gid[4] = gid[5] = 0xff;
  if (v4) {
    gid[12] = ip[12] & 0x0f;
    std::copy(ip.begin() + 13, ip.end(), gid.begin() + 13);
  } else {
    std::copy(ip.begin() + 6, ip.end(), gid.begin() + 6);
  }
  return gid;
}

// A join without an address asks the subnet manager for a new group.
Ip new_group() {
  static u32 count = 0;
  Ip gid{0xff, 0x12, 0xa0, 0x1b, 0xfe, 0x80};
  store_be16(gid.data() + 8, config().host);
  store_be16(gid.data() + 10, self().slot);
  store_be32(gid.data() + 12, ++count);
  return gid;
}

u32 free_number(const std::map<u32, Multicast *> &taken) {
  u32 n = 0;
  for (const auto &entry : taken) {
    if (entry.first != n) break;
    ++n;
  }
  return n;
}

Path path_to_group(const Id &id, const Address &address) {
  const Station &port = *id.port;
  Path p;
  p.global = 1;
  p.rate = rate_100_gbps;
  p.sgid = port.route_gid(id.source.family());
  if (port.ethernet) {
    p.dgid = address.host();  // RoCE v2: IPv4 stays mapped
    p.hop_limit = 1;
    p.traffic_class = id.tos_set ? id.tos : u8{0};
  } else {
    p.dgid = address.any() ? new_group() : infiniband_group(id, address);
    p.dlid = multicast_lid(p.dgid);
  }
  return p;
}

}  // namespace

int join(Id &id, const Address &address, u64 uid, Multicast *&out) {
  if (id.state != IdState::bound && id.state != IdState::address_resolved) return EINVAL;
  if (!id.ud()) return EINVAL;
  if (id.port->ethernet && (address.zero() || address.family() == family_ib)) return EINVAL;
  if (const int error = set_qkey(id, 0); error != 0) return error;

  Manager &m = manager();
  auto group = std::make_unique<Multicast>();
  group->number = free_number(m.groups);
  group->uid = uid;
  group->id = &id;
  out = group.get();
  m.groups[out->number] = out;
  id.groups.push_back(std::move(group));

  rdma_ucm_ud_param p{};
  p.qp_num = multicast_qpn;
  p.qkey = id.qkey;
  p.ah_attr = address_handle(*id.port, path_to_group(id, address));
  post_multicast_event(*out, EventType::multicast_join, 0, p);
  return 0;
}

Multicast *find_group(const Channel &channel, u32 number, int &error) {
  const auto it = manager().groups.find(number);
  if (it == manager().groups.end()) {
    error = ENOENT;
    return nullptr;
  }
  error = it->second->id->channel == &channel ? 0 : EINVAL;
  return error == 0 ? it->second : nullptr;
}

void leave(Multicast *group) {
  Id &id = *group->id;
  id.channel->remove_events_of(group);
  manager().groups.erase(group->number);
  std::erase_if(id.groups, [&](const auto &g) { return g.get() == group; });
}

}  // namespace softhca::cm
