#include "cm/station.h"

#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <string>

#include "config/identity.h"

namespace softhca::cm {

namespace {

u8 mtu_code(u32 bytes) {  // enum ib_mtu
  u8 code = 1;
  while (code < 5 && (256u << (code - 1)) < bytes) ++code;
  return code;
}

std::vector<Station> describe_ports() {
  const Config &c = config();
  std::vector<Station> all;
  for (u32 d = 0; d < c.devices.size(); ++d) {
    for (u32 p = 1; p <= c.devices[d].ports.size(); ++p) {
      const PortConfig &port = c.devices[d].ports[p - 1];
      Station s;
      u8 bytes[4];
      std::array<u8, 4> ip{};
      parse_ipv4(port.ipv4.empty() ? default_ipv4(c.host, d, p) : port.ipv4, ip);
      std::copy(ip.begin(), ip.end(), bytes);
      s.ip = mapped_ipv4(bytes);
      s.gid = port_gids(c, d, p).front().gid;
      s.host = c.host;
      s.device = static_cast<u8>(d);
      s.port = static_cast<u8>(p);
      s.ethernet = port.link == LinkLayer::ethernet;
      s.lid = s.ethernet ? u16{0} : port.lid;
      s.mtu = mtu_code(port.active_mtu);
      s.active = port.active;
      all.push_back(s);
    }
  }
  return all;
}

const Station *find(const Ip &ip) {
  for (const Station &s : local_stations())
    if (s.ip == ip || s.gid == ip) return &s;
  return nullptr;
}

// Name of the interface with this address; empty when there is none.
std::string interface_of(const Address &wanted) {
  std::string name;
  ifaddrs *list = nullptr;
  if (getifaddrs(&list) != 0) return name;
  for (const ifaddrs *i = list; i != nullptr && name.empty(); i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != wanted.family()) continue;
    const size_t size = wanted.family() == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (Address(i->ifa_addr, size).host() == wanted.host()) name = i->ifa_name;
  }
  freeifaddrs(list);
  return name;
}

}  // namespace

const std::vector<Station> &local_stations() {
  static const auto &all = *new std::vector<Station>(describe_ports());
  return all;
}

const Station *first_active() {
  const auto &all = local_stations();
  if (all.empty()) return nullptr;
  const auto it = std::find_if(all.begin(), all.end(), [](const Station &s) { return s.active; });
  return it != all.end() ? &*it : &all.front();
}

const Station *local_station(u32 device, u32 port) {
  for (const Station &s : local_stations())
    if (s.device == device && s.port == port) return &s;
  return nullptr;
}

const Station *owner_of(const Address &a) {
  if (const Station *s = find(a.host())) return s;
  if (a.family() == family_ib || a.multicast()) return nullptr;
  const std::string interface = interface_of(a);
  if (interface.empty()) return nullptr;
  for (const Station &s : local_stations())
    if (config().devices[s.device].ports[s.port - 1u].netdev == interface) return &s;
  return first_active();
}

const Station *station_with_gid(const Ip &gid) { return find(gid); }

std::optional<Station> presumed_station(const Address &a, const Station &like) {
  const Ip ip = a.host();
  u32 host = 0, device = 0, port = 0;
  // The inverse of the addresses in config/identity.h.
  if (is_mapped_ipv4(ip) && ip[12] == 10) {
    device = ip[13];
    port = ip[14];
    host = ip[15];
  } else if (ip[0] == 0xfe && ip[1] == 0x80 && like.ethernet) {
    host = ip[13];
    device = ip[14];
    port = ip[15];
  } else if (!like.ethernet) {
    const u64 guid = load_be64(ip.data() + 8);
    host = static_cast<u32>(guid >> 16 & 0xff);
    device = static_cast<u32>(guid >> 8 & 0xff);
    port = static_cast<u32>(guid & 0xff) + 1;
  }
  if (host == 0 || host > max_hosts || device >= max_devices || port == 0 || port > max_ports)
    return std::nullopt;

  Station s = like;
  u8 bytes[4] = {10, static_cast<u8>(device), static_cast<u8>(port), static_cast<u8>(host)};
  s.ip = mapped_ipv4(bytes);
  s.host = static_cast<u16>(host);
  s.device = static_cast<u8>(device);
  s.port = static_cast<u8>(port);
  s.lid = like.ethernet ? u16{0} : default_lid(s.host, device, port);
  s.gid = {0xfe, 0x80};
  if (like.ethernet) {
    constexpr u8 eui64[5] = {0x00, 0x53, 0x48, 0xff, 0xfe};
    std::copy(std::begin(eui64), std::end(eui64), s.gid.begin() + 8);
    s.gid[13] = static_cast<u8>(host);
    s.gid[14] = s.device;
    s.gid[15] = s.port;
  } else {
    store_be64(s.gid.data() + 8, default_node_guid(s.host, device) + port - 1);
  }
  // Whatever the form of the address, it must be one of the port's own.
  if (ip != s.ip && ip != s.gid) return std::nullopt;
  return s;
}

}  // namespace softhca::cm
