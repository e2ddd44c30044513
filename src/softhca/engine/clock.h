// The clock pages that libmlx5 maps: the free-running counter and the
// conversion to system time.
#pragma once

#include "base/types.h"
#include "model/driver.h"

namespace softhca {

// Brings all pages up to date. Device lock held.
void clock_tick(u64 now_ns);
// Raises the async events that the configuration asks for and that are due.
void raise_injected_events(u64 now_ns);

}  // namespace softhca
