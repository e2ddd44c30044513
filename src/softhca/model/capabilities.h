// Capabilities of a configured device: those of its model without the hidden
// ones.
#pragma once

#include <span>

#include "config/config.h"
#include "model/device.h"

namespace softhca {

struct CapabilityRow {
  const char *name;
  Model first;
  bool Capabilities::*flag;
  const char *description;
};
std::span<const CapabilityRow> capability_rows();

Capabilities capabilities_of(const DeviceConfig &);

}  // namespace softhca
