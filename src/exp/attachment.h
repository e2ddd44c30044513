// The operation table that legacy programs look for in front of a context, and
// everything else that belongs to the context.
//
// A legacy inline tests bit 62 of the word at context - 16 and computes
//
//     table end = context - (word at context - 8  -  sizeof(ibv_context))
//
// rdma-core leaves the first word unused and reads the second one, the size of
// the verbs_context, only in comparisons of the form "size >= offset of the
// slot". So the library sets the bit and chooses the size, modulo 2^64, such that
// the result is a table on the heap. The size grows by that and all comparisons
// of rdma-core's own inlines still hold. What is lost: a program compiled against
// a newer rdma-core than the one installed sees slots below the context that are
// not there.
#pragma once

#include "base/result.h"
#include "translate/state/context_state.h"

namespace ibvexp {

struct Attachment {
  explicit Attachment(ibv_context *context);

  ContextState state;
  verbs_context_exp table;

  // The two words as attach() found them: detach() puts them back.
  std::uint64_t old_mask;
  std::size_t old_size;
};

// Gives the context a table unless it has one. Safe to call at any time from any
// thread; the same state comes back every time. ENOTSUP for a context without
// the extended layout, ENOMEM.
Result<ContextState *> attach(ibv_context *context);

// Asks the kernel, the first time, whether ContextState::watched may be false.
void decide_watched(ContextState &state) noexcept;

// Takes a table of ours away again; other contexts are left alone. For
// contexts about to be closed: no other thread may use them at the same time.
void detach(ibv_context *context) noexcept;

// Fills the slots as slots.def says; op_table.cpp.
void fill_table(verbs_context_exp &table) noexcept;

}  // namespace ibvexp
