// The image of this process: opened at its first call, written to FILE as JSON
// at exit and on SIGUSR1.
#pragma once

#include "trace/trace_image.h"

namespace ibvexp::trace {

// Starts tracing into a file, or does not when the name is empty. For the time
// when the library is loaded.
void start(const char *file) noexcept;

// The image of this process; a child of fork() gets one of its own. Null when
// tracing is off or impossible, which has been said then.
Image *live_image() noexcept;

}  // namespace ibvexp::trace
