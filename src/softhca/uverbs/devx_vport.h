// What firmware says of a port.
#pragma once

#include "uverbs/firmware_command.h"

namespace softhca::uverbs {

// QUERY_HCA_VPORT_CONTEXT, of InfiniBand ports.
int vport_context_query(const File &, const Attrs &, Command &);
// An event of a port for those who subscribed: PORT_CHANGE.
void deliver_port_event(u32 port, EventType);

}  // namespace softhca::uverbs
