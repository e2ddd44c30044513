// What the device says of itself where rdma-core says less. One command each; nothing
// where the device cannot be asked.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>

namespace ibvexp::translate {

// Sizes of masked atomics that work on connected queue pairs and over DC alike: bit
// n for arguments of 1 << n bytes. 0 without them, and where the device refuses the question:
// rdma-core says only whether there are atomics. Nothing where asking failed for another reason.
std::optional<std::uint32_t> masked_atomic_sizes(ibv_context *context);

// dctc.atomic_mode (mlx5_ifc.h) of a DC target that serves all atomics of the device, as mlx5_ib
// chooses it. 0: the device has none. Nothing where it cannot be asked, with the reason in errno.
std::optional<std::uint32_t> target_atomic_mode(ibv_context *context);

// Whether the device has the DC transport, and keys of that many entries. Nothing where it cannot
// be asked.
std::optional<bool> reports_dc(ibv_context *context);
std::optional<bool> reports_key_entries(ibv_context *context, std::uint32_t entries);

// Whether shared receive queues that match tags may have strides. Nothing where the device cannot be
// asked.
std::optional<bool> reports_stride_queues(ibv_context *context);

// Whether programs can subscribe to the event of object number `event`. Nothing where the device
// cannot be asked, with the reason in errno.
std::optional<bool> reports_object_event(ibv_context *context, std::uint8_t event);

// Blocks of 64 bytes that a send queue has at most.
std::optional<std::uint32_t> largest_send_queue(ibv_context *context);

// Whether a rate limit may come with a burst and a typical packet size: libmlx5 knows,
// and keeps it to itself. As above.
std::optional<bool> paces_bursts(ibv_context *context);

}  // namespace ibvexp::translate
