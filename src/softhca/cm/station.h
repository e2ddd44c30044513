// The ports of the emulated network: what address resolution and the subnet
// manager know. A port is described the same way to its own host, in the
// registry and on the wire.
#pragma once

#include <optional>
#include <vector>

#include "base/types.h"
#include "cm/cm_address.h"

namespace softhca::cm {

struct Station {
  Ip ip{};   // IPv4 address, mapped
  Ip gid{};  // InfiniBand: GID 0; Ethernet: link-local address
  u16 host = 0;
  u16 lid = 0;    // InfiniBand only
  u8 device = 0;  // number of the device, from 0
  u8 port = 0;    // from 1
  u8 ethernet = 0;
  u8 mtu = 0;  // active, enum ib_mtu
  u8 active = 0;
  u8 reserved[7] = {};

  // The GID that an address of `family` is reached by.
  const Ip &route_gid(u16 family) const { return ethernet && family != AF_INET6 ? ip : gid; }
  // Whether packets can go from one to the other.
  bool same_network(const Station &other) const { return ethernet == other.ethernet; }
};
static_assert(sizeof(Station) == 48);

// The ports of this host, in order. first_active() falls back to the first; it
// is nullptr when no device is configured.
const std::vector<Station> &local_stations();
const Station *first_active();
const Station *local_station(u32 device, u32 port);

// The port of this host that an address belongs to: one of its own addresses,
// or that of a network interface of the machine, which then stands for the
// port that shows the interface, or else for the first active one. nullptr:
// not an address of this host.
const Station *owner_of(const Address &);

// The port of this host with this GID.
const Station *station_with_gid(const Ip &gid);

// The port on another host that the numbering of config/identity.h gives an
// address to. For hosts that have not announced themselves; `like` names the link layer.
std::optional<Station> presumed_station(const Address &, const Station &like);

}  // namespace softhca::cm
