// What the device says of itself where rdma-core says less. One command each; nothing
// where the device cannot be asked.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace ibvexp::translate {

// Sizes of masked atomics that work on connected queue pairs and over DC alike: bit
// n for arguments of 1 << n bytes. 0 without them: rdma-core says only whether there are
// atomics.
std::uint32_t masked_atomic_sizes(ibv_context *context);

// Whether a rate limit may come with a burst and a typical packet size: libmlx5 knows,
// and keeps it to itself.
bool paces_bursts(ibv_context *context);

}  // namespace ibvexp::translate
