// The heap of this library, see heap.cpp.
#pragma once

namespace softhca {

// Around fork(): the child gets it whole.
void heap_stop();
void heap_go_on();

}  // namespace softhca
