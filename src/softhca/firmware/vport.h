// What firmware says of a port.
#pragma once

#include "model/device.h"

namespace softhca::firmware {

// The beginning of hca_vport_context, in which all of its fields are.
constexpr u32 vport_context_bytes = 128;
void describe_port(const Device &, u32 number, u8 *context);
// The attribute PortInfo, 64 bytes that are 0, as a port's own agent answers it.
void describe_port_info(const Device &, u32 number, u8 *info);

// The event that tells what became of a port, and what it says: 0 if it does not say that.
constexpr u8 port_change = 0x09;
u8 port_change_subtype(EventType);
// Where the event has the number of the port, in the high bits.
constexpr u32 port_change_port_at = 8;

}  // namespace softhca::firmware
