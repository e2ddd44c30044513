// The answer to QUERY_HCA_CAP: capability pages in the firmware's layout.
#pragma once

#include <vector>

#include "model/device.h"

namespace softhca::firmware {

// What on-demand paging does per transport (enum ib_odp_transport_cap_bits).
constexpr u32 odp_send = 1, odp_receive = 2, odp_write = 4, odp_read = 8, odp_atomic = 16,
              odp_srq_receive = 32;
constexpr u32 odp_connected = odp_send | odp_receive | odp_write | odp_read | odp_srq_receive;
constexpr u32 odp_datagram = odp_send | odp_receive | odp_srq_receive;

// Of the table of rates for packet pacing; the first entry means none.
constexpr u32 rate_entries = 128;

// Of an entry of a flow table.
constexpr u32 log_max_destinations = 8;

// Page number `type`; empty when the device has no such page.
std::vector<u8> hca_caps(const Device &, u32 type);

}  // namespace softhca::firmware
