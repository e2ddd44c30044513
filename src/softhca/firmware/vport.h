// What firmware says of a port.
#pragma once

#include "model/device.h"

namespace softhca::firmware {

// The beginning of hca_vport_context, in which all of its fields are.
constexpr u32 vport_context_bytes = 128;
void describe_port(const Device &, u32 number, u8 *context);
// Writes PortInfo, 64 bytes that the caller has cleared, as the port's subnet management agent does.
void describe_port_info(const Device &, u32 number, u8 *info);

// The event PORT_CHANGE, and its subtype for an event of the device; 0: it has none.
constexpr u8 port_change = 0x09;
u8 port_change_subtype(EventType);
// The byte of the event's data whose high 4 bits are the number of the port.
constexpr u32 port_change_port_at = 8;

}  // namespace softhca::firmware
