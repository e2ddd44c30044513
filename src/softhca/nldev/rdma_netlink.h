// Sockets of the program that speak RDMA netlink.
//
// A descriptor is a socket of netlink's protocol for users (NETLINK_USERSOCK), so that
// names, receive buffers, poll and everything else are the kernel's; only what is sent
// comes here, and the answers arrive from another socket of that protocol. Receivers see
// that one's number as the sender's, where the kernel's would be 0.
//
// Thread safety: all functions may be called from any thread, without the device lock.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include "base/types.h"

namespace softhca {

// socket(AF_NETLINK, type, NETLINK_RDMA). -1 and EPROTONOSUPPORT where the system has no
// such sockets: libraries then turn to sysfs.
int rdma_netlink_open(int type);
// Whether a descriptor is one of them. Lock-free.
bool is_rdma_netlink(int fd);
// sendmsg(2) on one. Returns the number of bytes, or -1 and errno.
ssize_t rdma_netlink_send(int fd, const msghdr &message);
// A further descriptor exists; a descriptor goes away (before the real close).
void rdma_netlink_dup(int to);
void rdma_netlink_close(int fd);

}  // namespace softhca
