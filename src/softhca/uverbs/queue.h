// What the creation of QPs, CQs and SRQs has in common.
#pragma once

#include "uverbs/attrs.h"
#include "uverbs/state.h"

namespace softhca::uverbs {

// Makes `bytes` at `address` usable as a queue buffer: EFAULT when it is not
// writable memory.
int claim_buffer(u64 address, u64 bytes);
// The same for a doorbell record of two words, which must be aligned (EINVAL).
int claim_doorbell(u64 address);

// The user index that completions carry: 24 bits, and not the value that means
// "none" (EINVAL). Kernel: verify_assign_uidx.
int check_uidx(u32 uidx);

// In a forked child the device starts with the first queue.
int start_device();

// Channel of the async events of a new object: the one named by attribute
// `id`, else the file's first.
EventChannel *async_channel(const File &, const Attrs &, u16 id);

}  // namespace softhca::uverbs
