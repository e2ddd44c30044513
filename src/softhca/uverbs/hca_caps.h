// The answer to QUERY_HCA_CAP: capability pages in the firmware's layout.
#pragma once

#include <vector>

#include "model/device.h"

namespace softhca::uverbs {

// Page number `type`; empty when the device has no such page.
std::vector<u8> hca_caps(const Device &, u32 type);

}  // namespace softhca::uverbs
