// Paging on demand, where the driver of a kernel brings and takes the pages of its keys. What
// reaches for a page that is not there waits for it: a send queue fetches nothing, a
// responder has its requester come again.
//
// Device lock held.
#pragma once

#include "model/mkey.h"
#include "model/qp.h"

namespace softhca {

// Asks for these pages, unless others are waited for. False: they are not going to come.
bool wait_for_pages(Qp &, PageSide, const PageFault &);
// They are there, or, `failed`, not going to come.
void pages_came(Qp &, PageSide, bool failed);
// Memory that is not behind this key any more: what is on its way there, or from there, fails.
// By another key it may still be reached.
void forget_pages(u32 index, const SpanList &gone);
// The same for all that was reached by a key, which is destroyed or changed. If a work
// request does that, the ones before it on the same side of the same QP are spared.
void forget_key(u32 index);
void forget_key(u32 index, u32 qpn, PageSide spared);

}  // namespace softhca
