// An open /dev/infiniband/uverbsN: what the preload layer calls.
//
// The descriptor that the application holds is a memfd whose offsets are the
// mmap offsets of the driver (UAR pages, clock pages, device memory). mmap on
// it therefore needs no interposition: it works for programs that make the system
// call themselves.
#pragma once

#include <sys/types.h>

#include "base/types.h"

struct ib_uverbs_ioctl_hdr;

namespace softhca {

class File;  // one open file description; several descriptors may share it

// Opens device `index` (order of the configuration). Returns the new
// descriptor, or -1 and errno. `flags` are open(2) flags; O_CLOEXEC is kept.
int uverbs_open(u32 index, int flags);
// The file behind a descriptor, or nullptr. Lock-free.
File *uverbs_file(int fd);
// RDMA_VERBS_IOCTL. Returns 0, or -1 and errno.
int uverbs_ioctl(File *, ib_uverbs_ioctl_hdr *);
// Whether the driver lets an application map that page of a device: 0 or an errno value.
int uverbs_map_refused(unsigned long long page, size_t length, int protection, int flags);
// The application has mapped pages of a device.
void uverbs_mapped();
// A further descriptor of the same file description exists (dup, fcntl).
void uverbs_dup(int from, int to);
// The descriptor goes away (call before the real close). The last one
// destroys everything the file owns.
void uverbs_close(int fd);
// Number of configured devices, and device numbers for stat: st_rdev as the
// sysfs `dev` file names it.
u32 uverbs_device_count();
dev_t uverbs_device_number(u32 index);
// In a forked child, after fork: see engine_forget().
void uverbs_forked();
// An event descriptor of ours is being closed by the application.
void uverbs_event_fd_closing(int fd);

}  // namespace softhca
