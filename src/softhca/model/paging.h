// Paging on demand, where the driver of a kernel brings and takes the pages of its keys. An access to
// a missing page waits for it: a send queue stops fetching WQEs, a responder makes its
// requester try again.
//
// Device lock held.
#pragma once

#include "model/mkey.h"
#include "model/qp.h"

namespace softhca {

// Asks for these pages, unless others are waited for. False: the driver cannot bring them.
bool wait_for_pages(Qp &, PageSide, const PageFault &);
// The pages are there, or the driver could not bring them (`failed`).
void pages_came(Qp &, PageSide, bool failed);
// Memory that is not behind this key any more: what is on its way there, or from there, fails.
// By another key it may still be reached.
void forget_pages(u32 index, const SpanList &gone);
// The same for all that was reached by a key, which is destroyed or changed. If a work
// request does that, the ones before it on the same side of the same QP are spared.
void forget_key(u32 index);
void forget_key(u32 index, u32 qpn, PageSide spared);

}  // namespace softhca
