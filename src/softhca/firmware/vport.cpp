#include "firmware/vport.h"

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

}  // namespace softhca::firmware
