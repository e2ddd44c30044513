// What the device's atomics can do: rdma-core tells only whether there are any.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace ibvexp::translate {

// Sizes of masked atomics that work on connected queue pairs and over DC alike: bit
// n for arguments of 1 << n bytes. 0 without them, and where the device cannot be
// asked. One command.
std::uint32_t masked_atomic_sizes(ibv_context *context);

}  // namespace ibvexp::translate
