// What the dynamic linker reads of an ELF file, and what can be asked of its constants:
// from the mapped file, of which only the pages that are asked for are read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ibvexp::tool {

class ElfHead {
 public:
  // Of a file that is no 64-bit little-endian ELF, or cannot be read, nothing is there.
  explicit ElfHead(const std::filesystem::path &file);
  ~ElfHead();
  ElfHead(const ElfHead &) = delete;
  ElfHead &operator=(const ElfHead &) = delete;

  bool is_elf() const { return machine_ != 0; }
  bool is_damaged() const { return damaged_; }
  // The bytes of the file, and how many it has at least by its headers: more if it is cut off.
  std::uint64_t size() const { return size_; }
  std::uint64_t least_size() const { return least_size_; }
  unsigned machine() const { return machine_; }
  // The dynamic linker that it names; empty in libraries and static programs.
  const std::string &interpreter() const { return interpreter_; }
  const std::vector<std::string> &needed() const { return needed_; }
  const std::string &run_path() const { return run_path_; }
  // In hexadecimal digits; empty if there is none.
  const std::string &build_id() const { return build_id_; }

  bool needs(std::string_view library) const;
  // Names that the dynamic linker looks up in other files.
  std::vector<std::string_view> imports() const;
  // Whether a text occurs among the names of symbols and libraries for the dynamic linker.
  bool has_name_with(std::string_view text) const;
  // Whether a whole text, from one null to the next, stands in read-only data, or a part of one.
  bool has_constant(std::string_view text) const;
  bool has_constant_with(std::string_view part) const;
  // Whether a function of that name is in the file: for files that are not stripped.
  bool is_stripped() const { return symbols_.empty(); }
  bool defines_function(std::string_view name) const;

 private:
  std::span<const char> bytes(std::uint64_t offset, std::uint64_t size) const;
  std::string_view text(std::uint64_t offset) const;
  std::uint64_t offset_of(std::uint64_t address) const;
  void read_dynamic(std::uint64_t offset, std::uint64_t size);
  void read_notes(std::uint64_t offset, std::uint64_t size);
  void read_symbols(std::uint64_t sections, unsigned count);

  struct Segment {
    std::uint64_t address, offset, size;
    bool constant;  // neither writable nor executable
  };

  const char *data_ = nullptr;
  std::size_t size_ = 0;
  std::uint64_t least_size_;
  unsigned machine_ = 0;
  bool damaged_ = false;
  std::vector<Segment> segments_;
  std::string interpreter_, run_path_, build_id_;
  std::vector<std::string> needed_;
  std::span<const char> names_, imports_;  // the latter perhaps with others behind them
  std::span<const char> symbols_, symbol_names_;
};

// Whether an ElfHead or an ElfImage needs libibverbs, libmlx5 or librdmacm, or imports a name that
// begins with ibv_ or rdma_. A file that creates objects of verbs has one or the other; plug-ins may
// have neither, and call verbs through slots all the same.
template <class File>
bool names_verbs(const File &file) {
  const auto any = [](const auto &names, auto... starts) {
    return std::ranges::any_of(
        names, [&](std::string_view name) { return (name.starts_with(starts) || ...); });
  };
  return any(file.needed(), "libibverbs.so", "librdmacm.so", "libmlx5.so") ||
         any(file.imports(), "ibv_", "rdma_");
}

// A copy of libibverbs that was linked into a program: nothing that is preloaded replaces
// it. Programs that only quote its texts have none. Reads all constants of a program without
// the shared libibverbs that has its imports.
bool has_own_libibverbs(const ElfHead &program);

}  // namespace ibvexp::tool
