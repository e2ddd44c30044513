// The packet pacing table of a device (mlx5_core/rl.c): rates that send queues
// refer to by index. Equal rates share an entry, dedicated ones do not.
#pragma once

#include "base/types.h"

namespace softhca::uverbs {

struct Rate {
  u32 kbps = 0;
  u32 max_burst_bytes = 0;
  u16 typical_packet_bytes = 0;
  bool operator==(const Rate &) const = default;
};

// 0 and an index that is not 0; EINVAL out of the device's range, ENOSPC when
// the table is full.
int pacing_acquire(u32 device, const Rate &, bool dedicated, u16 &index);
// 0 is no entry and may be given back, too.
void pacing_release(u32 device, u16 index);

}  // namespace softhca::uverbs
