// Private structures of the legacy libmlx5 that machine code reads: programs
// compiled with mlx5_hw.h look behind the public objects, with plain loads that
// leave no name. What betrays them is which offsets of one pointer are read.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tool/audit/binary/values.h"

namespace ibvexp::audit {

enum class LayoutObject : std::uint8_t { qp, cq, srq, wq };

// A load relative to a pointer, as it stands in a function.
struct FieldRead {
  Values::SymbolId base;
  std::int64_t offset;
  std::uint8_t size;
  std::uint64_t site;
  bool followed;  // what was loaded is a pointer that is read through
};

struct LayoutRelease {
  int read_3x = 0, read_4x = 0;  // members where only that release has them
  std::string_view name() const {
    return read_3x == read_4x ? "" : read_3x > read_4x ? "3.x" : "4.x";
  }
};

// One pointer that is read as a private structure.
struct LayoutSite {
  std::uint64_t address;   // of the first load
  std::uint64_t function;  // start of the function that contains it
  LayoutObject object;
  std::vector<std::string_view> members;
  LayoutRelease release;
};

// The object that a verb, or the slot of one, creates.
std::optional<LayoutObject> object_of(std::string_view verb);

// What is known of a pointer beside its loads: it came from, or went to, a verb.
struct TypedPointer {
  Values::SymbolId base;
  LayoutObject object;
};

// Whether the code of a function may read such structures at all; true for a few
// that do not. creates: it may call a verb whose object it then reads.
bool may_read_layouts(std::span<const std::uint8_t> function, bool creates);

// The private structures among the loads of one function.
std::vector<LayoutSite> find_layouts(std::vector<FieldRead> reads,
                                     std::span<const TypedPointer> typed);

}  // namespace ibvexp::audit
