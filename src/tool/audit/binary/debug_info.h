// What DWARF adds where a binary still has it: lines, functions, and headers that
// were compiled in.
#pragma once

#include <memory>
#include <set>

#include "tool/audit/binary/elf_image.h"

namespace ibvexp::audit {

struct Place {
  std::string function;
  std::string file;
  int line = 0;
};

class DebugInfo {
 public:
  explicit DebugInfo(const ElfImage &image);
  ~DebugInfo();

  bool present() const;
  // Where the program's own source says what happens at an address; the bodies of
  // experimental verbs that were inlined are stepped out of.
  Place place_of(std::uint64_t address) const;
  // Names of source files that contributed, without their folders.
  std::set<std::string> source_files() const;
  // Names of experimental verbs that have code: inlined or as functions.
  std::set<std::string> verbs_with_code() const;
  // Whether one of these structures is described with its members.
  bool has_structure(std::initializer_list<std::string_view> names) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ibvexp::audit
