// Doorbell registers: libmlx5 writes the head of the newest WQE, the number of
// its QP in it, into a UAR page behind the doorbell record. A register keeps the
// last write only, and several QPs share one: it says at once where to look, not
// everywhere where there is something to see. Device lock held.
#pragma once

#include "base/types.h"

namespace softhca {

// A UAR page as the device maps it. Two UARs may share a page. The library maps it
// or `instead`.
void doorbells_add(u8 *page, const u8 *instead = nullptr);
void doorbells_remove(const u8 *page);
// In a forked child: the parent's pages are the parent's.
void doorbells_forget();
// Wakes the QPs whose numbers were written since the last look.
void doorbells_look(u64 now_ns);

}  // namespace softhca
