// What entries of flow tables match, as commands carry it (fte_match_param of mlx5_ifc.h).
#pragma once

#include "model/eth_flow.h"

namespace softhca::firmware {

constexpr u32 match_bytes = 512;  // of a value, and of a mask

// Whether the device knows all fields of that mask.
bool match_is_known(const u8 *mask);
// 0; EOPNOTSUPP: a field that is not known; EINVAL: fields that contradict each other.
int read_match(const u8 *value, const u8 *mask, FlowKey &out_value, FlowKey &out_mask);

}  // namespace softhca::firmware
