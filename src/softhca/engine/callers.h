// The callers in whose spin locks the device runs: libmlx5, and programs and libraries that
// are linked with it, since they drive queues themselves. Any other lock may be taken inside
// malloc or in a signal handler.
#pragma once

namespace softhca {

// Updates the list from the loaded libraries. Device lock held.
void callers_find();
// Whether the code at that address is theirs.
bool callers_have(const void *code);

}  // namespace softhca
