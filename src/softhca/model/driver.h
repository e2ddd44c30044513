// What the model asks of whoever drives it; engine/ defines both.
#pragma once

#include "base/types.h"

namespace softhca {

// Starts the engine thread and the clock pages; 0 or errno. Device lock held.
int engine_start();

// Writes the time to the pages of the free-running counter. Device lock held.
void clock_show(u64 now_ns);

}  // namespace softhca
