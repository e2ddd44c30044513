// Numbers that one command reports and another checks.
#pragma once

#include "base/types.h"
#include "model/eth_queue.h"

namespace softhca::uverbs {

constexpr u32 max_moderation_period = 4095;  // microseconds

// What on-demand paging does per transport (enum ib_odp_transport_cap_bits).
constexpr u32 odp_send = 1, odp_receive = 2, odp_write = 4, odp_read = 8, odp_atomic = 16,
              odp_srq_receive = 32;
constexpr u32 odp_connected = odp_send | odp_receive | odp_write | odp_read | odp_srq_receive;
constexpr u32 odp_datagram = odp_send | odp_receive | odp_srq_receive;

// Striding receive queues, logarithms.
constexpr u32 min_log_stride_bytes = 6, max_log_stride_bytes = 13;
constexpr u32 min_log_strides = 3, max_log_strides = 16;

// Fields an RSS hash can be made of.
constexpr u32 supported_hash_fields = hash_ipv4 | hash_ipv6 | hash_tcp | hash_udp | hash_inner;

}  // namespace softhca::uverbs
