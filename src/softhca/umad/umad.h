// /dev/infiniband/umad<n>, one for each port: management datagrams as far as
// programs need them for their data path. Behind those of InfiniBand ports
// answers a subnet administrator (sa.h); there is no other management agent.
//
// A descriptor is one end of a socket pair: read, poll and fcntl work on it as
// they are; write and ioctl come here. Thread safety: all functions may be
// called from any thread, without the device lock.
#pragma once

#include <sys/types.h>

#include "base/types.h"

namespace softhca {

struct UmadPort {
  u32 device = 0;
  u32 port = 1;
};

// The ports of all devices, in order.
u32 umad_count();
UmadPort umad_port(u32 index);
// st_rdev of a node.
dev_t umad_device_number(u32 index);

// Opens node `index`, which exists. Returns the descriptor, or -1 and errno.
int umad_open(u32 index, int flags);
// 1 + index of the node behind a descriptor, 0 for any other. Lock-free.
u32 umad_node_of(int fd);
// write(2) of one datagram behind its header (struct ib_user_mad). Returns
// `length`, or -1 and errno.
ssize_t umad_write(int fd, const void *buffer, size_t length);
// ioctl(2): registration of agents. -1 and ENOTTY for all other requests.
int umad_ioctl(int fd, unsigned long request, void *argument);
// A further descriptor exists; a descriptor goes away (before the real close).
void umad_dup(int from, int to);
void umad_close(int fd);

}  // namespace softhca
