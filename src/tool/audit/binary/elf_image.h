// An ELF file in memory: what the audit needs of it, from program headers, so
// that a file without section headers is read just as well.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

struct Elf;

namespace ibvexp::audit {

// What is wrong with an input, in words for its user.
struct InputError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Segment {
  std::uint64_t address;
  std::span<const std::uint8_t> bytes;  // as in the file; zeroes follow in memory
  bool executable;
  bool writable;
};

struct NamedAddress {
  std::string_view name;  // in the image
  std::uint64_t address;
  std::uint64_t size;
  bool function;
};

class ElfImage {
 public:
  // Throws InputError, also for a file that ends too early.
  explicit ElfImage(const std::string &path);
  ~ElfImage();
  ElfImage(const ElfImage &) = delete;
  ElfImage &operator=(const ElfImage &) = delete;

  bool is_x86_64() const { return x86_64_; }
  bool is_arm64() const { return arm64_; }  // AArch64, little-endian
  // Not linked yet: addresses are ours, and debug information does not know them.
  bool is_object_file() const { return object_file_; }
  std::string_view machine() const { return machine_; }
  bool is_program() const { return program_; }  // has an interpreter or a fixed address
  // A program without a dynamic linker.
  bool is_static() const { return !interpreted_ && (fixed_ || pie_); }
  std::uint64_t entry() const { return entry_; }

  const std::vector<Segment> &segments() const { return segments_; }
  // Bytes at an address, up to the end of its segment; empty outside of all.
  std::span<const std::uint8_t> at(std::uint64_t address) const;
  // A C string, empty if there is none.
  std::string_view text_at(std::uint64_t address) const;

  const std::vector<std::string> &needed() const { return needed_; }
  const std::string &run_path() const { return run_path_; }
  const std::vector<std::string> &imports() const { return imports_; }
  // The name that the dynamic linker resolves into a word of the image; empty for
  // others.
  std::string_view import_at(std::uint64_t address) const;
  const std::map<std::uint64_t, std::string_view> &import_words() const { return import_words_; }
  // Read when first asked for: not from several threads.
  const std::vector<NamedAddress> &symbols() const;
  // Whether a text occurs in the names of symbols, without reading all of them.
  bool has_symbol_with(std::string_view text) const;
  // Where relative relocations point to inside of code.
  const std::vector<std::uint64_t> &code_pointers() const { return code_pointers_; }
  std::uint64_t eh_frame_hdr() const { return eh_frame_hdr_; }
  bool executable_at(std::uint64_t address) const;
  // Gives pages of the file back that were read once; they are read again where needed.
  void release_pages() const;
  // A loop over code calls release_pages() after that many bytes.
  static constexpr std::size_t release_after = std::size_t{16} << 20;
  int descriptor() const { return fd_; }

 private:
  void read_contents();
  void read_segments();
  void read_dynamic(std::uint64_t address);
  void read_section_symbols() const;
  void read_dynamic_symbols() const;
  void read_object_file();
  void read_packed_relocations(std::uint64_t packed, std::uint64_t size);
  void read_import_words(std::uint64_t relocations, std::uint64_t size, std::uint64_t symbols,
                         std::uint64_t strings);

  std::string path_;
  int fd_ = -1;
  Elf *elf_ = nullptr;
  // Files up to that size are read. To map one costs more: page faults, and the other threads'
  // processors hear of the end.
  static constexpr std::uint64_t read_whole = std::uint64_t{4} << 20;
  std::uint64_t file_size_ = 0;
  std::unique_ptr<char[]> contents_;  // of a file that is not mapped
  bool x86_64_ = false, arm64_ = false, program_ = false, object_file_ = false;
  std::deque<std::vector<std::uint8_t>> laid_out_;  // what segments of an object file refer to
  bool interpreted_ = false, fixed_ = false, pie_ = false;
  std::string machine_;
  std::uint64_t entry_ = 0, eh_frame_hdr_ = 0;
  std::vector<Segment> segments_;
  std::vector<std::string> needed_, imports_;
  std::string run_path_;
  // The dynamic symbols.
  std::uint64_t dynamic_symbols_ = 0, dynamic_count_ = 0, dynamic_names_ = 0, names_size_ = 0;
  mutable bool symbols_read_ = false;
  mutable std::vector<NamedAddress> symbols_;
  std::vector<std::uint64_t> code_pointers_;
  std::map<std::uint64_t, std::string_view> import_words_;
};

}  // namespace ibvexp::audit
