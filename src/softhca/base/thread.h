// Threads of the device.
#pragma once

namespace softhca {

// Starts a detached thread that takes none of the application's signals. 0 or an
// errno.
int start_thread(void *(*run)(void *), void *argument);

}  // namespace softhca
