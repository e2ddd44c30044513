// Finds the calls through the operation table of experimental verbs in machine
// code. They are inlines, so no symbol betrays them: what remains is the address
// arithmetic, a comparison of the table's size and a load of the slot.
#pragma once

#include <map>

#include "tool/audit/binary/elf_image.h"
#include "tool/audit/binary/layouts.h"

namespace ibvexp::audit {

// What a field of a request may hold on its way into a slot: one value, or several that a
// branch chooses from.
struct FieldValue {
  std::vector<std::uint64_t> values;
  std::uint8_t size;
};

// The requests that the arguments of a slot call point to, as far as code shows
// them: by argument and offset; offset -1 is the argument itself.
using ArgumentValues = std::map<std::pair<int, int>, FieldValue>;

struct SlotSite {
  std::uint64_t address;
  std::uint64_t function;  // start of the function that contains it
  int from_end;            // bytes from the slot to the end of the table
  bool called;             // or only loaded: tested, or handed on
  bool old_lookup;         // the look-up of 2.x headers
  ArgumentValues arguments;
};

// A complaint about comp_mask that the header compiled in: which bits the header
// knew shows its release.
struct MaskComplaint {
  std::string verb;
  std::uint64_t valid_mask;
};

struct Dispatch {
  std::vector<SlotSite> sites;
  std::vector<MaskComplaint> complaints;
  std::vector<LayoutSite> layouts;  // looked for if the image has to do with verbs
  bool cut = false;                 // there are more than most_uses of one of these
  std::size_t functions = 0;        // all there are
  std::size_t evaluated = 0;
  std::size_t code_bytes = 0;
};

// x86-64 only.
Dispatch find_dispatch(const ElfImage &image);

}  // namespace ibvexp::audit
