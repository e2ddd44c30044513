#include "tool/audit/binary/debug_info.h"

#include <dwarf.h>
#include <elfutils/libdw.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <vector>

namespace ibvexp::audit {

namespace {

// Deeper than compilers nest blocks, by far.
constexpr std::size_t deepest_block = 1000;

// Whether nothing in a unit is nested deeper.
bool is_flat(const Dwarf_Die &unit) {
  std::vector<Dwarf_Die> path = {unit};
  for (;;) {
    Dwarf_Die next;
    if (dwarf_child(&path.back(), &next) == 0) {
      if (path.size() == deepest_block) return false;
      path.push_back(next);
      continue;
    }
    while (path.size() > 1 && dwarf_siblingof(&path.back(), &next) != 0) path.pop_back();
    if (path.size() == 1) return true;
    path.back() = next;
  }
}

}  // namespace

struct DebugInfo::Impl {
  Dwarf *dwarf = nullptr;
  std::map<Dwarf_Off, bool> flat;  // units that were looked at
  // Code of each unit, for producers that write no .debug_aranges.
  std::map<std::uint64_t, std::pair<std::uint64_t, Dwarf_Off>> units;

  void index_units() {
    Dwarf_Off offset = 0, next = 0;
    std::size_t header = 0;
    while (dwarf_nextcu(dwarf, offset, &next, &header, nullptr, nullptr, nullptr) == 0) {
      Dwarf_Die die;
      if (dwarf_offdie(dwarf, offset + header, &die) != nullptr) {
        Dwarf_Addr base = 0, start = 0, end = 0;
        std::ptrdiff_t at = 0;
        while ((at = dwarf_ranges(&die, at, &base, &start, &end)) > 0)
          units[start] = {end, offset + header};
      }
      offset = next;
    }
  }

  bool unit_at(std::uint64_t address, Dwarf_Die &die) const {
    auto it = units.upper_bound(address);
    if (it == units.begin()) return false;
    --it;
    return address < it->second.first && dwarf_offdie(dwarf, it->second.second, &die) != nullptr;
  }

  // libdw goes down by recursion. In a damaged unit there are no functions.
  bool has_scopes(Dwarf_Die &unit) {
    const auto [it, fresh] = flat.try_emplace(dwarf_dieoffset(&unit));
    if (fresh) it->second = is_flat(unit);
    return it->second;
  }

  template <class Fn>
  void for_each_unit(Fn fn) const {
    Dwarf_Off offset = 0, next = 0;
    std::size_t header = 0;
    while (dwarf_nextcu(dwarf, offset, &next, &header, nullptr, nullptr, nullptr) == 0) {
      Dwarf_Die die;
      if (dwarf_offdie(dwarf, offset + header, &die) != nullptr) fn(die);
      offset = next;
    }
  }
};

namespace {

// The name of a function, also of one that refers to another description.
std::string_view name_of(Dwarf_Die &die) {
  Dwarf_Attribute a;
  const char *name = dwarf_formstring(dwarf_attr_integrate(&die, DW_AT_name, &a));
  return name == nullptr ? std::string_view() : name;
}

bool has_code(Dwarf_Die &die) {
  Dwarf_Addr base = 0, start = 0, end = 0;
  std::ptrdiff_t at = 0;
  while ((at = dwarf_ranges(&die, at, &base, &start, &end)) > 0)
    if (end > start) return true;
  return false;
}

void walk(Dwarf_Die die, const std::function<void(Dwarf_Die &)> &fn) {
  fn(die);
  Dwarf_Die child;
  if (dwarf_child(&die, &child) != 0) return;
  do walk(child, fn);
  while (dwarf_siblingof(&child, &child) == 0);
}

bool is_function(Dwarf_Die &die) {
  const int tag = dwarf_tag(&die);
  return tag == DW_TAG_subprogram || tag == DW_TAG_inlined_subroutine;
}

bool is_of_header(std::string_view name) {
  return name.starts_with("ibv_exp_") || name.starts_with("ibvexp_") || name.starts_with("verbs_");
}

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

DebugInfo::DebugInfo(const ElfImage &image) : impl_(std::make_unique<Impl>()) {
  if (image.is_object_file()) return;
  impl_->dwarf = dwarf_begin(image.descriptor(), DWARF_C_READ);
  if (impl_->dwarf != nullptr) impl_->index_units();
}

DebugInfo::~DebugInfo() { dwarf_end(impl_->dwarf); }

bool DebugInfo::present() const { return !impl_->units.empty(); }

Place DebugInfo::place_of(std::uint64_t address) const {
  Place out;
  Dwarf_Die unit;
  if (!impl_->unit_at(address, unit)) return out;
  if (Dwarf_Line *line = dwarf_getsrc_die(&unit, address)) {
    const char *file = dwarf_linesrc(line, nullptr, nullptr);
    if (file != nullptr) out.file = file;
    dwarf_lineno(line, &out.line);
  }
  if (!impl_->has_scopes(unit)) return out;
  Dwarf_Die *scopes = nullptr;
  const int count = dwarf_getscopes(&unit, address, &scopes);
  for (int i = 0; i < count; ++i) {
    if (!is_function(scopes[i])) continue;
    const std::string_view name = name_of(scopes[i]);
    if (dwarf_tag(&scopes[i]) == DW_TAG_inlined_subroutine && is_of_header(name)) {
      // Step out to where it was called.
      Dwarf_Attribute a;
      Dwarf_Word line = 0, file = 0;
      if (dwarf_formudata(dwarf_attr(&scopes[i], DW_AT_call_line, &a), &line) == 0)
        out.line = static_cast<int>(line);
      Dwarf_Files *files = nullptr;
      std::size_t n = 0;
      if (dwarf_formudata(dwarf_attr(&scopes[i], DW_AT_call_file, &a), &file) == 0 &&
          dwarf_getsrcfiles(&unit, &files, &n) == 0)
        if (const char *path = dwarf_filesrc(files, file, nullptr, nullptr)) out.file = path;
      continue;
    }
    out.function = name;
    break;
  }
  std::free(scopes);
  return out;
}

std::set<std::string> DebugInfo::source_files() const {
  std::set<std::string> out;
  if (impl_->dwarf == nullptr) return out;
  impl_->for_each_unit([&](Dwarf_Die &unit) {
    Dwarf_Files *files = nullptr;
    std::size_t count = 0;
    if (dwarf_getsrcfiles(&unit, &files, &count) != 0) return;
    for (std::size_t i = 0; i < count; ++i)
      if (const char *path = dwarf_filesrc(files, i, nullptr, nullptr))
        out.insert(std::string(file_name(path)));
  });
  return out;
}

std::set<std::string> DebugInfo::verbs_with_code() const {
  std::set<std::string> out;
  if (impl_->dwarf == nullptr) return out;
  impl_->for_each_unit([&](Dwarf_Die &unit) {
    walk(unit, [&](Dwarf_Die &die) {
      if (!is_function(die) || !has_code(die)) return;
      if (const auto name = name_of(die); name.starts_with("ibv_exp_")) out.emplace(name);
    });
  });
  return out;
}

bool DebugInfo::has_structure(std::initializer_list<std::string_view> names) const {
  bool found = false;
  if (impl_->dwarf == nullptr) return false;
  // Structures stand in the unit itself, or in a namespace.
  const std::function<void(Dwarf_Die &)> look = [&](Dwarf_Die &parent) {
    Dwarf_Die child;
    if (found || dwarf_child(&parent, &child) != 0) return;
    do {
      const int tag = dwarf_tag(&child);
      Dwarf_Die member;
      if (tag == DW_TAG_namespace) look(child);
      else if (tag == DW_TAG_structure_type && dwarf_haschildren(&child) != 0 &&
               dwarf_child(&child, &member) == 0)
        found = std::find(names.begin(), names.end(), name_of(child)) != names.end();
    } while (!found && dwarf_siblingof(&child, &child) == 0);
  };
  impl_->for_each_unit([&](Dwarf_Die &unit) {
    if (impl_->has_scopes(unit)) look(unit);
  });
  return found;
}

}  // namespace ibvexp::audit
