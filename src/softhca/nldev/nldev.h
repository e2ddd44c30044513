// What the kernel reports about RDMA devices by netlink, as far as libraries look for
// devices by it: the devices, their ports, and the nodes of both. The messages are those
// of drivers/infiniband/core/nldev.c; all others are refused, as by a kernel that does
// not know them.
//
// Thread safety: a function of its arguments and the configuration.
#pragma once

#include <string>
#include <vector>

#include "base/types.h"

namespace softhca {

// The datagrams that answer one datagram of the socket with the number `port_id`.
std::vector<std::string> nldev_answer(const u8 *request, size_t length, u32 port_id);

}  // namespace softhca
