// What IBVEXP_LOG_LEVEL=info says of a process.
#pragma once

namespace ibvexp {

struct ContextState;

// One line when the library is loaded: its release, rdma-core's, the options.
void announce_library() noexcept;

// One line for each device, when it is opened for the first time.
void announce_device(const ContextState &state) noexcept;

}  // namespace ibvexp
