#include "firmware/vport.h"

#include <bit>

#include "base/fields.h"
#include "config/identity.h"

namespace softhca::firmware {

void describe_port(const Device &device, u32 number, u8 *context) {
  // hca_vport_context of mlx5_ifc.h, bits and, where fields are longer than a word, bytes.
  constexpr u32 has_smi = 257, physical_state = 272, state = 280, vport_state = 284, lid = 768,
                lmc_timeout = 795, sm_lid = 800;
  constexpr u32 system_guid_at = 40, port_guid_at = 48, node_guid_at = 56, capabilities_at = 64;
  constexpr u32 link_up = 5, disabled = 3, active = 4, down = 1, subnet_timeout = 18;
  const PortConfig &port = device.port(number);
  set_field(context, has_smi, 1, 1);
  set_field(context, physical_state, 4, device.up(number) ? link_up : disabled);
  set_field(context, state, 4, device.up(number) ? active : down);
  set_field(context, vport_state, 4, device.up(number) ? active : down);
  const u64 node = node_guid(config(), device.number);
  store_be64(context + system_guid_at, node);
  store_be64(context + port_guid_at, port_guid(config(), device.number, number));
  store_be64(context + node_guid_at, node);
  store_be32(context + capabilities_at, port_cap_mask(port.link));
  set_field(context, lid, 16, port.lid);
  set_field(context, lmc_timeout, 5, subnet_timeout);
  set_field(context, sm_lid, 16, subnet_manager_lid);
}

void describe_port_info(const Device &device, u32 number, u8 *info) {
  // InfiniBand Architecture Specification, volume 1, 14.2.5.6.
  constexpr u8 widths = 7, speeds = 15, qdr = 4, link_up = 5, disabled = 3, active = 4, down = 1,
               polling = 2, lanes_0_to_7 = 4;
  const PortConfig &port = device.port(number);
  const bool up = device.up(number);
  const auto both = [](u32 high, u32 low) { return static_cast<u8>(high << 4 | low); };
  constexpr u32 largest_mtu = 5;  // 4096
  const auto mtu = static_cast<u32>(std::countr_zero(port.active_mtu)) - 7;
  store_be64(info + 8, port.gid_prefix);
  store_be16(info + 16, static_cast<u16>(port.lid));
  store_be16(info + 18, subnet_manager_lid);
  store_be32(info + 20, port_cap_mask(port.link));
  info[28] = static_cast<u8>(number);
  info[29] = info[30] = widths;
  info[31] = active_width_4x;
  info[32] = both(speeds, up ? active : down);
  info[33] = both(up ? link_up : disabled, polling);
  info[35] = both(qdr, speeds);
  info[36] = both(mtu, 0);
  info[37] = both(lanes_0_to_7, 0);
  info[41] = both(0, largest_mtu);
  info[43] = both(lanes_0_to_7, 0);
}

u8 port_change_subtype(EventType type) {
  switch (type) {
    case EventType::port_err: return 1;
    case EventType::port_active: return 4;
    case EventType::lid_change: return 6;
    case EventType::pkey_change: return 7;
    case EventType::gid_change: return 8;
    case EventType::client_reregister: return 9;
    default: return 0;
  }
}

}  // namespace softhca::firmware
