// The files `counters` and `hw_counters` of a port in sysfs. What they show is read when they are opened.
#pragma once

#include "base/types.h"

namespace softhca {

// Errors and pauses of the link are not counted: always 0.
inline constexpr const char *zero_counters[] = {"VL15_dropped",
                                                "excessive_buffer_overrun_errors",
                                                "link_downed",
                                                "link_error_recovery",
                                                "local_link_integrity_errors",
                                                "port_rcv_constraint_errors",
                                                "port_rcv_errors",
                                                "port_rcv_remote_physical_errors",
                                                "port_rcv_switch_relay_errors",
                                                "port_xmit_constraint_errors",
                                                "port_xmit_discards",
                                                "port_xmit_wait",
                                                "symbol_error"};
inline constexpr const char *traffic_counters[] = {
    "multicast_rcv_packets", "multicast_xmit_packets", "port_rcv_data",
    "port_rcv_packets",      "port_xmit_data",         "port_xmit_packets",
    "unicast_rcv_packets",   "unicast_xmit_packets"};
inline constexpr const char *queue_counter_names[] = {
#define SOFTHCA_QUEUE_COUNTER(name, bit, shown) shown ? #name : nullptr,
#include "model/queue_counters.def"
#undef SOFTHCA_QUEUE_COUNTER
};

// A descriptor of what such a file shows now; -1, errno untouched: `path` is none of a configured port.
// Data is counted in words of four bytes, as InfiniBand has it.
int open_counter(const char *path, bool close_on_exec);

}  // namespace softhca
