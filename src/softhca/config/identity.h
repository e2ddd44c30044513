// The identity of a port: GUIDs, MAC address and GID table, for sysfs and the command
// layer alike.
//
// Every default is made of (host, device, port) and is thus unique in a fabric:
//   MAC        02:53:48:<host>:<device>:<port>
//   node GUID  0253:4803:00<host>:<device>00, port p of it: + p - 1
//   LID        host + 256 * (2 * device + port - 1)   (device 0, port 1: host)
//   IPv4       10.<device>.<port>.<host>
// Devices count from 0, ports from 1.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "base/types.h"
#include "config/config.h"

namespace softhca {

constexpr u32 max_hosts = 250;
constexpr u32 max_devices = 16;
constexpr u32 max_ports = 2;  // per device

struct PortGid {
  std::array<u8, 16> gid{};
  u8 type = 0;  // enum ib_uverbs_gid_type: 0 InfiniBand, 1 RoCE v1, 2 RoCE v2
};

// As ConnectX derives it: OUI, 03 00, the rest of the MAC address. 0 for a MAC address of zeros.
u64 guid_behind(const std::array<u8, 6> &mac);
u64 default_node_guid(u16 host, u32 device);
u16 default_lid(u16 host, u32 device, u32 port);
std::string default_ipv4(u16 host, u32 device, u32 port);

u64 node_guid(const Config &, u32 device);
u64 port_guid(const Config &, u32 device, u32 port);
std::array<u8, 6> port_mac(const Config &, u32 device, u32 port);

// InfiniBand: {gid_prefix : port GUID}.
// Ethernet: 0 RoCE v1 and 1 RoCE v2 of the link-local address,
//           2 RoCE v1 and 3 RoCE v2 of the IPv4 address (::ffff:a.b.c.d).
std::vector<PortGid> port_gids(const Config &, u32 device, u32 port);

// How a model identifies itself. The PCI device ID is also vendor_part_id.
struct ModelIdentity {
  u32 part_id;
  const char *hca_type;
  const char *board_id;
  u16 fw_major, fw_minor, fw_sub;
  std::string fw_version() const;  // "20.35.2000"
};
const ModelIdentity &model_identity(Model);

constexpr u32 pci_vendor = 0x15b3;

// Table sizes as ConnectX reports them.
constexpr u32 gid_table_size(LinkLayer l) { return l == LinkLayer::infiniband ? 8 : 255; }
constexpr u16 the_pkey = 0xffff;  // at index 0, with full membership
constexpr u32 pkey_table_size(LinkLayer l) { return l == LinkLayer::infiniband ? 128 : 1; }

// Every port runs at EDR on four lanes (100 Gb/s): values of query_port.
constexpr u8 active_speed_edr = 32;
constexpr u8 active_width_4x = 2;

// port_cap_flags of each link layer.
constexpr u32 port_cap_mask(LinkLayer l) {
  return l == LinkLayer::infiniband ? 0x2651e848 : 0x04010000;
}

// InfiniBand ports: where requests to the subnet administrator go.
constexpr u16 subnet_manager_lid = 1;
// The LID of the port with this GUID: a port of this process, or of a host with the default
// GUID. 0: there is none.
u16 lid_of_guid(const Config &, u64 guid);

// Dotted quad to its four bytes; false when it is none.
bool parse_ipv4(const std::string &, std::array<u8, 4> &out);

}  // namespace softhca
