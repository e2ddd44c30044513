#include "config/identity.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstdio>

namespace softhca {

namespace {

// Locally administered, "SH" for software HCA.
constexpr u8 mac_prefix[3] = {0x02, 0x53, 0x48};

const PortConfig &port_config(const Config &c, u32 device, u32 port) {
  return c.devices[device].ports[port - 1];
}

}  // namespace

u64 guid_behind(const std::array<u8, 6> &mac) {
  if (mac == std::array<u8, 6>{}) return 0;
  return u64{mac[0]} << 56 | u64{mac[1]} << 48 | u64{mac[2]} << 40 | u64{0x0300} << 24 |
         u64{mac[3]} << 16 | u64{mac[4]} << 8 | mac[5];
}

u64 default_node_guid(u16 host, u32 device) {
  return u64{mac_prefix[0]} << 56 | u64{mac_prefix[1]} << 48 | u64{mac_prefix[2]} << 40 |
         u64{0x0300} << 24 | u64{host} << 16 | u64{device} << 8;
}

u16 default_lid(u16 host, u32 device, u32 port) {
  return static_cast<u16>(host + 256 * (max_ports * device + port - 1));
}

std::string default_ipv4(u16 host, u32 device, u32 port) {
  return "10." + std::to_string(device) + '.' + std::to_string(port) + '.' + std::to_string(host);
}

u64 node_guid(const Config &c, u32 device) {
  const u64 configured = c.devices[device].node_guid;
  return configured ? configured : default_node_guid(c.host, device);
}

u64 port_guid(const Config &c, u32 device, u32 port) { return node_guid(c, device) + port - 1; }

u16 lid_of_guid(const Config &c, u64 guid) {
  for (u32 d = 0; d < c.devices.size(); ++d)
    for (u32 p = 1; p <= c.devices[d].ports.size(); ++p)
      if (port_guid(c, d, p) == guid) return c.devices[d].ports[p - 1].lid;
  const u16 host = static_cast<u16>(guid >> 16);
  const u32 device = guid >> 8 & 0xff, port = (guid & 0xff) + 1;
  const bool any = host != 0 && host <= max_hosts && device < max_devices && port <= max_ports;
  return any && default_node_guid(host, device) + port - 1 == guid ? default_lid(host, device, port)
                                                                   : u16{0};
}

std::array<u8, 6> port_mac(const Config &c, u32 device, u32 port) {
  const auto &mac = port_config(c, device, port).mac;
  if (mac != std::array<u8, 6>{}) return mac;
  return {mac_prefix[0],           mac_prefix[1],           mac_prefix[2],
          static_cast<u8>(c.host), static_cast<u8>(device), static_cast<u8>(port)};
}

std::string ModelIdentity::fw_version() const {
  char text[24];
  std::snprintf(text, sizeof text, "%u.%u.%04u", fw_major, fw_minor, fw_sub);
  return text;
}

const ModelIdentity &model_identity(Model m) {
  static constexpr ModelIdentity cx4{4115, "MT4115", "MT_2190110032", 12, 28, 2006};
  static constexpr ModelIdentity cx5{4119, "MT4119", "MT_0000000012", 16, 35, 2000};
  static constexpr ModelIdentity cx6{4123, "MT4123", "MT_0000000223", 20, 35, 2000};
  switch (m) {
    case Model::connectx4: return cx4;
    case Model::connectx5: return cx5;
    case Model::connectx6: break;
  }
  return cx6;
}

bool parse_ipv4(const std::string &text, std::array<u8, 4> &out) {
  return inet_pton(AF_INET, text.c_str(), out.data()) == 1;
}

std::vector<PortGid> port_gids(const Config &c, u32 device, u32 port) {
  const PortConfig &p = port_config(c, device, port);
  PortGid g;
  if (p.link == LinkLayer::infiniband) {
    store_be64(g.gid.data(), p.gid_prefix);
    store_be64(g.gid.data() + 8, port_guid(c, device, port));
    return {g};
  }

  std::vector<PortGid> table;
  const auto add = [&table](PortGid entry) {
    for (u8 type : {1, 2}) {
      entry.type = type;
      table.push_back(entry);
    }
  };

  // Link-local IPv6 address: the MAC address as modified EUI-64.
  const auto mac = port_mac(c, device, port);
  g.gid = {0xfe, 0x80};
  g.gid[8] = static_cast<u8>(mac[0] ^ 0x02);
  g.gid[9] = mac[1];
  g.gid[10] = mac[2];
  g.gid[11] = 0xff;
  g.gid[12] = 0xfe;
  std::copy(mac.begin() + 3, mac.end(), g.gid.begin() + 13);
  add(g);

  std::array<u8, 4> ip{};
  parse_ipv4(p.ipv4.empty() ? default_ipv4(c.host, device, port) : p.ipv4, ip);
  g.gid = {};
  g.gid[10] = g.gid[11] = 0xff;
  std::copy(ip.begin(), ip.end(), g.gid.begin() + 12);
  add(g);
  return table;
}

}  // namespace softhca
