// When the engine thread may rest, and for how long.
#pragma once

#include "base/types.h"
#include "model/device.h"

namespace softhca {

// Sleeping for less is not worth its traps.
inline constexpr u64 shortest_rest_ns = 100'000;

// How long after the last work the thread goes to rest.
u64 rest_after(const Process &);
// When the device has to be run again if nothing wakes it: no record of another
// process, no doorbell, no command. ~0: never. Device lock held.
u64 next_due(const Process &, u64 now_ns);

}  // namespace softhca
