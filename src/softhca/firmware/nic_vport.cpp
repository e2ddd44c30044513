// The port of a function as a network interface: its address, and what the driver wants of it.
#include <algorithm>

#include "base/fields.h"
#include "config/identity.h"
#include "firmware/hca.h"
#include "firmware/queues.h"
#include "model/flow_table.h"

namespace softhca::firmware {

namespace {

// nic_vport_context of mlx5_ifc.h, bits and bytes.
constexpr u32 out_at = 16, in_at = 256, context_bytes = 256, other_vport_bit = 64;
constexpr u32 no_own_multicast = 29, no_own_unicast = 30, roce_bit = 31, mtu_bits = 304;
constexpr u32 system_guid_at = 40, port_guid_at = 48, node_guid_at = 56, address_at = 246;

// What MODIFY_NIC_VPORT_CONTEXT may change, bits of its mask. Lists of addresses tell
// switches; which frames are received is a matter of flow tables.
enum Select : u32 {
  select_roce = 1 << 1,
  select_addresses = 1 << 2,
  select_address = 1 << 3,
  select_promiscuous = 1 << 4,
  select_change_event = 1 << 5,
  select_mtu = 1 << 6,
  select_own_multicast = 1 << 10,
  select_own_unicast = 1 << 11,
};

}  // namespace

Status Hca::nic_vport_context(Command &c) {
  constexpr u32 ordinary_mtu = 1500;
  if (get_field(c.in.data(), other_vport_bit, 1) != 0) return Status::bad_param;
  if (!device.ethernet(1)) return Status::bad_op;
  std::array<u8, context_bytes> context{};
  if (nic_vport_.empty()) set_field(context.data(), mtu_bits, 16, ordinary_mtu);
  else std::copy(nic_vport_.begin(), nic_vport_.end(), context.begin());
  const u64 node = node_guid(config(), device.number);
  store_be64(context.data() + system_guid_at, node);
  store_be64(context.data() + port_guid_at, port_guid(config(), device.number, 1));
  store_be64(context.data() + node_guid_at, node);
  const auto mac = port_mac(config(), device.number, 1);
  std::copy(mac.begin(), mac.end(), context.begin() + address_at);
  fill(c, out_at, context);
  return Status::ok;
}

Status Hca::nic_vport_modify(Command &c) {
  constexpr u32 known = select_roce | select_addresses | select_promiscuous | select_change_event |
                        select_mtu | select_own_multicast | select_own_unicast;
  const u32 select = load_be32(c.in.data() + 12);
  if (!device.ethernet(1)) return Status::bad_op;
  if (get_field(c.in.data(), other_vport_bit, 1) != 0 || (select & ~known) != 0)
    return Status::bad_param;
  const u8 *given = c.in.data() + in_at;
  if (nic_vport_.empty()) nic_vport_.resize(mtu_bits / 8 + 2);
  const auto take = [&](u32 bit, u32 offset, u32 width) {
    if ((select & bit) != 0)
      set_field(nic_vport_.data(), offset, width, get_field(given, offset, width));
  };
  take(select_roce, roce_bit, 1);
  take(select_own_multicast, no_own_multicast, 1);
  take(select_own_unicast, no_own_unicast, 1);
  take(select_mtu, mtu_bits, 16);
  flow_set_loopback({get_field(nic_vport_.data(), no_own_unicast, 1) == 0,
                     get_field(nic_vport_.data(), no_own_multicast, 1) == 0});
  return Status::ok;
}

}  // namespace softhca::firmware
