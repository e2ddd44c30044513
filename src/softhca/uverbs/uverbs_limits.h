// Numbers that one command reports and another checks.
#pragma once

#include "base/types.h"
#include "model/eth_queue.h"

namespace softhca::uverbs {

constexpr u32 max_moderation_period = 4095;  // microseconds

// Striding receive queues, logarithms.
constexpr u32 min_log_stride_bytes = 6, max_log_stride_bytes = 13;
constexpr u32 min_log_strides = 3, max_log_strides = 16;

// Fields an RSS hash can be made of.
constexpr u32 supported_hash_fields = hash_ipv4 | hash_ipv6 | hash_tcp | hash_udp | hash_inner;

}  // namespace softhca::uverbs
