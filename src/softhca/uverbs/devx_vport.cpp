#include "uverbs/devx_vport.h"

#include <algorithm>
#include <array>

#include "base/fields.h"
#include "config/identity.h"
#include "uverbs/subscriptions.h"

namespace softhca::uverbs {

int vport_context_query(const File &file, const Attrs &attrs, Command &c) {
  constexpr u32 answer_at = 16, shown_bytes = 108;
  // hca_vport_context, in bits and, where they are longer than a word, in bytes.
  constexpr u32 physical_state = 272, state = 280, vport_state = 284, lid = 768, sm_lid = 800;
  constexpr u32 system_guid_at = 40, port_guid_at = 48, node_guid_at = 56;
  constexpr u32 link_up = 5, disabled = 3, active = 4, down = 1;
  const Device &device = file.device();
  // Devices with one port have no number for it.
  const u32 named = get_field(c.in.data(), 76, 4), number = std::max(named, 1u);
  const bool other_vport = get_field(c.in.data(), 64, 1) != 0;
  if (!file.valid_port(number) || (named == 0 && device.port_count() > 1) || other_vport)
    return reply(attrs, c, Status::bad_param);
  const PortConfig &port = device.port(number);
  if (port.link != LinkLayer::infiniband) return reply(attrs, c, Status::bad_op);
  std::array<u8, shown_bytes> context{};
  set_field(context.data(), physical_state, 4, port.active ? link_up : disabled);
  set_field(context.data(), state, 4, port.active ? active : down);
  set_field(context.data(), vport_state, 4, port.active ? active : down);
  const u64 node = node_guid(config(), device.number);
  store_be64(context.data() + system_guid_at, node);
  store_be64(context.data() + port_guid_at, port_guid(config(), device.number, number));
  store_be64(context.data() + node_guid_at, node);
  set_field(context.data(), lid, 16, port.lid);
  set_field(context.data(), sm_lid, 16, 1);
  if (c.out.size() > answer_at)
    std::copy_n(context.begin(), std::min(context.size(), c.out.size() - answer_at),
                c.out.begin() + answer_at);
  return reply(attrs, c, Status::ok);
}

void deliver_port_event(u32 port, EventType type) {
  // Of an event entry: its type and subtype, and the port in the high bits.
  constexpr u8 port_change = 0x09;
  constexpr u32 type_at = 1, subtype_at = 3, port_at = 40;
  u8 subtype;
  switch (type) {
    case EventType::port_err: subtype = 1; break;
    case EventType::port_active: subtype = 4; break;
    case EventType::lid_change: subtype = 6; break;
    case EventType::pkey_change: subtype = 7; break;
    case EventType::gid_change: subtype = 8; break;
    case EventType::client_reregister: subtype = 9; break;
    default: return;
  }
  EventEntry entry{};
  entry[type_at] = port_change;
  entry[subtype_at] = subtype;
  entry[port_at] = static_cast<u8>(port << 4);
  port_subscriptions().deliver(port_change, entry);
}

}  // namespace softhca::uverbs
