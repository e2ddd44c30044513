// What firmware says of a port.
#pragma once

#include "model/device.h"

namespace softhca::firmware {

// The beginning of hca_vport_context, in which all of its fields are.
constexpr u32 vport_context_bytes = 128;
void describe_port(const Device &, u32 number, u8 *context);

}  // namespace softhca::firmware
