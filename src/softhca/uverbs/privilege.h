// What the kernel asks of the calling process.
#pragma once

#include <linux/capability.h>

#include "base/types.h"

namespace softhca::uverbs {

// Effective capability CAP_* of this thread.
bool has_capability(u32 number);

// Counts registered memory against RLIMIT_MEMLOCK where the configuration says
// so (core/umem.c): 0, ENOMEM over the limit, EPERM when the limit is 0, EINVAL for pages that 32
// bits do not count.
int pin(u64 bytes);
void unpin(u64 bytes);

}  // namespace softhca::uverbs
