#include "uverbs/devx_vport.h"

#include <algorithm>
#include <array>

#include "base/fields.h"
#include "firmware/vport.h"
#include "uverbs/subscriptions.h"

namespace softhca::uverbs {

int vport_context_query(const File &file, const Attrs &attrs, Command &c) {
  const Device &device = file.device();
  // Devices with one port have no number for it.
  const u32 named = get_field(c.in.data(), 76, 4), number = std::max(named, 1u);
  const bool other_vport = get_field(c.in.data(), 64, 1) != 0;
  if (!file.valid_port(number) || (named == 0 && device.port_count() > 1) || other_vport)
    return reply(attrs, c, Status::bad_param);
  if (device.ethernet(number)) return reply(attrs, c, Status::bad_op);
  std::array<u8, vport_context_bytes> context{};
  describe_port(device, number, context.data());
  if (c.out.size() > header_bytes)
    std::copy_n(context.begin(), std::min<size_t>(context.size(), c.out.size() - header_bytes),
                c.out.begin() + header_bytes);
  return reply(attrs, c, Status::ok);
}

void deliver_port_event(u32 port, EventType type) {
  // Offsets in an event entry: type, subtype, and the port in the high bits.
  constexpr u32 type_at = 1, subtype_at = 3, port_at = 32 + port_change_port_at;
  const u8 subtype = port_change_subtype(type);
  if (subtype == 0) return;
  EventEntry entry{};
  entry[type_at] = port_change;
  entry[subtype_at] = subtype;
  entry[port_at] = static_cast<u8>(port << 4);
  port_subscriptions().deliver(port_change, entry);
}

}  // namespace softhca::uverbs
