// Match parameters of flow table entries (fte_match_param of mlx5_ifc.h).
#pragma once

#include "model/eth_flow.h"

namespace softhca::firmware {

constexpr u32 match_bytes = 512;  // of a value, and of a mask

// Whether the device supports all fields of the mask.
bool match_is_known(const u8 *mask);
// Returns 0; EOPNOTSUPP: unsupported field; EINVAL: contradictory fields.
int read_match(const u8 *value, const u8 *mask, FlowKey &out_value, FlowKey &out_mask);

}  // namespace softhca::firmware
