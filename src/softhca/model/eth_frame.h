// What an Ethernet frame contains, and the checksums in it.
#pragma once

#include "base/types.h"

namespace softhca {

constexpr u32 eth_header_bytes = 14, vlan_tag_bytes = 4, fcs_bytes = 4;
constexpr u32 min_frame_bytes = 60;      // without FCS; the wire pads shorter ones
constexpr u32 max_frame_bytes = 10'240;  // without FCS; longer ones are lost
constexpr u16 ethertype_ipv4 = 0x0800, ethertype_ipv6 = 0x86dd;
constexpr u16 ethertype_cvlan = 0x8100, ethertype_svlan = 0x88a8;
constexpr u16 vxlan_port = 4789;

// Values as in completions.
enum class L3 : u8 { none = 0, ipv6 = 1, ipv4 = 2 };
enum class L4 : u8 { none, tcp, udp };

// One stack of headers: the frame itself or the one inside its tunnel. All
// positions count from the start of the (outer) frame.
struct EthLayers {
  u32 l2 = 0;
  u32 l3 = 0;
  u32 l4 = 0;
  u32 end = 0;         // of the IP packet; padding may follow
  u16 ether_type = 0;  // behind the VLAN tag
  u16 vlan_tci = 0;    // of the outermost tag
  bool cvlan = false;  // a customer VLAN tag is present
  bool svlan = false;  // a service one, in front of it
  bool fragment = false;
  bool first = true;       // of the fragments
  bool has_ports = false;  // behind l4; the first fragment of a packet has them, too
  u8 protocol = 0;         // behind IPv6 extension headers
  L3 l3_type = L3::none;
  L4 l4_type = L4::none;  // with its header complete, and no fragment
};

struct EthFrame {
  const u8 *data = nullptr;
  u32 bytes = 0;
  EthLayers outer;
  EthLayers inner;      // meaningful if tunnel
  bool tunnel = false;  // VXLAN
  u32 vni = 0;
};

// At least eth_header_bytes are needed.
EthFrame parse_frame(const u8 *data, u32 bytes);

bool l3_checksum_ok(const u8 *frame, const EthLayers &);
bool l4_checksum_ok(const u8 *frame, const EthLayers &);
void write_checksums(u8 *frame, const EthLayers &, bool l3, bool l4);

// Sum of 16-bit words, folded; over what follows the Ethernet header as
// completions report it.
u16 ones_complement_sum(const u8 *data, u32 bytes);

u32 frame_check_sequence(const u8 *data, u32 bytes);

}  // namespace softhca
