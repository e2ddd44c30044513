// The heap of this library, see heap.cpp. Sanitizers watch that of libc, which their builds
// keep.
#pragma once

namespace softhca {

// Around fork(): the child gets it whole.
#ifdef OWN_HEAP
void heap_stop();
void heap_go_on();
#else
inline void heap_stop() {}
inline void heap_go_on() {}
#endif

}  // namespace softhca
