// The answer to QUERY_HCA_CAP: capability pages in the firmware's layout.
#pragma once

#include <array>
#include <vector>

#include "model/device.h"

namespace softhca::firmware {

// What on-demand paging does per transport (enum ib_odp_transport_cap_bits).
constexpr u32 odp_send = 1, odp_receive = 2, odp_write = 4, odp_read = 8, odp_atomic = 16,
              odp_srq_receive = 32;
constexpr u32 odp_connected = odp_send | odp_receive | odp_write | odp_read | odp_srq_receive;
constexpr u32 odp_datagram = odp_send | odp_receive | odp_srq_receive;

// Entries in the table of rates for packet pacing; the first one means no limit.
constexpr u32 rate_entries = 128;

// Destinations of one entry of a flow table.
constexpr u32 log_max_destinations = 8;

// Numbers of the events that programs may subscribe to, of objects and of no object.
constexpr std::array<u8, 15> object_events{0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x07, 0x10,
                                           0x11, 0x12, 0x13, 0x14, 0x18, 0x1c, 0x1d};
constexpr std::array<u8, 1> port_events{0x09};

// Page number `type`; empty when the device has no such page.
std::vector<u8> hca_caps(const Device &, u32 type);

}  // namespace softhca::firmware
