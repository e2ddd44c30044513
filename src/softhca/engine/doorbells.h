// Doorbell registers: after the doorbell record libmlx5 writes the head of the newest
// WQE, with the number of its QP, into a UAR page. A register keeps the last write
// only, and several QPs share one: it shows the QP that was posted to last, not all
// QPs with new WQEs. Device lock held.
#pragma once

#include "base/types.h"

namespace softhca {

// Adds a UAR page as the device maps it; two UARs may share one. libmlx5 has mapped this page
// or `instead`.
void doorbells_add(u8 *page, const u8 *instead = nullptr);
void doorbells_remove(const u8 *page);
// In a forked child: drops the parent's pages.
void doorbells_forget();
// Wakes the QPs whose numbers were written since the last look.
void doorbells_look(u64 now_ns);

}  // namespace softhca
