// Threads of the device.
#pragma once

namespace softhca {

// Starts a detached thread that blocks all of the application's signals. Returns 0 or an
// errno value.
int start_thread(void *(*run)(void *), void *argument);

}  // namespace softhca
