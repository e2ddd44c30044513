// The operation table, filled slot by slot as slots.def says.
#include "exp/boundary.h"

namespace ibvexp {

namespace {

template <EntryId id, class Member>
struct Fills;

template <EntryId id, class F>
struct Fills<id, F *> {
  using Slot = typename Through<id, F>::Slot;
  static F *function() { return trace::on() ? &Slot::call_traced : &Slot::call; }
};

}  // namespace

void fill_table(verbs_context_exp &table) noexcept {
#define IBVEXP_SLOT(name, entry) \
  table.name = Fills<EntryId::entry, decltype(table.name)>::function();
#include "table/slots.def"
  // The remaining words are null but for the last.
  table.sz = sizeof(table);
}

}  // namespace ibvexp
