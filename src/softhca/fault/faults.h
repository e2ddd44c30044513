// Fault injection: rules of the configuration, counted per process. All
// functions are called with the device lock held.
#pragma once

#include "base/types.h"

namespace softhca {

// Name of the command as "OBJECT/METHOD" or "WRITE/NAME". Returns the errno
// to answer, or 0.
int fault_command(const char *name);

struct WqeFault {
  u8 syndrome = 0;
  u8 vendor = 0;
};
// Name of the send opcode ("SEND", "RDMA_WRITE", ...), "RECV" for receives.
WqeFault fault_wqe(const char *opcode);

struct PacketFault {
  bool drop = false;
  bool duplicate = false;
  u64 delay_ns = 0;
};
// Kind is "REQUEST", "ACK", "READ_RESPONSE", "ATOMIC_RESPONSE" or "DATAGRAM".
PacketFault fault_packet(const char *kind);

// Async events due now (name as in the rules, e.g. "PORT_ERR"), one per call;
// nullptr when none. `now_ns` is the device clock, `open_ns` when it started.
struct EventFault {
  const char *name = nullptr;
  u32 port = 1;
};
EventFault fault_event(u64 now_ns, u64 open_ns);

// False when no rule exists: the hot paths skip the calls above.
bool faults_configured();

}  // namespace softhca
