// Capabilities that rdma-core does not report, by one firmware command each; nullopt if the
// command fails.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>

namespace ibvexp::translate {

// Sizes of masked atomics that work on connected queue pairs and over DC alike: bit
// n for arguments of 1 << n bytes. 0 if the device has none, or refuses the command. nullopt if
// the command failed for another reason.
std::optional<std::uint32_t> masked_atomic_sizes(ibv_context *context);

// dctc.atomic_mode (mlx5_ifc.h) of a DC target that serves all atomics of the device, as mlx5_ib
// chooses it. 0: the device has none. nullopt if the command fails, with the reason in errno.
std::optional<std::uint32_t> target_atomic_mode(ibv_context *context);

// Whether the device has the DC transport, and keys of that many entries. nullopt if the command
// fails.
std::optional<bool> reports_dc(ibv_context *context);
std::optional<bool> reports_key_entries(ibv_context *context, std::uint32_t entries);

// Whether shared receive queues that match tags may have strides. nullopt if the command
// fails.
std::optional<bool> reports_stride_queues(ibv_context *context);

// Whether programs can subscribe to event number `event` of an object. nullopt if the command
// fails, with the reason in errno.
std::optional<bool> reports_object_event(ibv_context *context, std::uint8_t event);

// Size limit of a send queue, in blocks of 64 bytes.
std::optional<std::uint32_t> largest_send_queue(ibv_context *context);

// Whether a rate limit may have a burst and a typical packet size, which libmlx5 does not
// report. nullopt if the command fails.
std::optional<bool> paces_bursts(ibv_context *context);

}  // namespace ibvexp::translate
