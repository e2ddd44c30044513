// An open /dev/infiniband/rdma_cm: what the preload layer calls.
//
// The descriptor that the application holds is one end of a socket pair. A
// byte waits in it for as long as an event is queued, so poll, select and
// epoll need no help; commands are given with write(), also the one that
// fetches an event.
#pragma once

#include <sys/types.h>

#include "base/types.h"

namespace softhca {

namespace cm {
class Channel;
// The event channel behind a descriptor, or nullptr. Lock-free.
Channel *channel_of(int fd);
}  // namespace cm

// `flags` are those of open(2). Joins the fabric, like opening a device.
// Returns the new descriptor, or -1 and errno.
int cm_open(int flags);
// write(2) on a descriptor of ours. Waits for an event without the device lock.
ssize_t cm_write(int fd, const void *buffer, size_t length);
// After `from` has been duplicated to `to`.
void cm_dup(int from, int to);
// Before a descriptor is closed. With the last one all ids go.
void cm_close(int fd);
// In a forked child: its event channels are empty new ones.
void cm_forked();
// st_rdev: a miscellaneous device with a minor number of the dynamic range.
dev_t cm_device_number();

}  // namespace softhca
