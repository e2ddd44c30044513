#include "tool/elf_head.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace ibvexp::tool {

namespace {

bool contains(std::span<const char> bytes, std::string_view text) {
  return memmem(bytes.data(), bytes.size(), text.data(), text.size()) != nullptr;
}

}  // namespace

ElfHead::ElfHead(const std::filesystem::path &file) : least_size_(sizeof(Elf64_Ehdr)) {
  const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return;
  struct stat status;
  if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
    size_ = static_cast<std::size_t>(status.st_size);
    void *at =
        size_ < least_size_ ? MAP_FAILED : mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at != MAP_FAILED) data_ = static_cast<const char *>(at);
  }
  close(fd);
  if (data_ == nullptr) return;
  Elf64_Ehdr head;
  std::memcpy(&head, data_, sizeof(head));
  if (std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
      head.e_ident[EI_DATA] != ELFDATA2LSB)
    return;
  machine_ = head.e_machine;
  const auto has_at_least = [&](std::uint64_t offset, std::uint64_t size) {
    least_size_ = std::max(least_size_, offset + size);
  };
  has_at_least(head.e_phoff, std::uint64_t{head.e_phnum} * sizeof(Elf64_Phdr));
  std::uint64_t dynamic = 0, dynamic_size = 0;
  for (unsigned i = 0; i < head.e_phnum; ++i) {
    const auto raw =
        bytes(head.e_phoff + std::uint64_t{i} * sizeof(Elf64_Phdr), sizeof(Elf64_Phdr));
    if (raw.empty()) {
      damaged_ = true;
      return;
    }
    Elf64_Phdr p;
    std::memcpy(&p, raw.data(), sizeof(p));
    if (p.p_type == PT_LOAD) {
      has_at_least(p.p_offset, p.p_filesz);
      segments_.push_back({p.p_vaddr, p.p_offset, p.p_filesz, (p.p_flags & (PF_W | PF_X)) == 0});
    }
    if (p.p_type == PT_INTERP) {
      interpreter_ = text(p.p_offset);
      damaged_ = damaged_ || interpreter_.empty();
    }
    if (p.p_type == PT_NOTE) read_notes(p.p_offset, p.p_filesz);
    if (p.p_type == PT_DYNAMIC) {
      dynamic = p.p_offset;
      dynamic_size = p.p_filesz;
    }
  }
  read_dynamic(dynamic, dynamic_size);
  read_symbols(head.e_shoff, head.e_shnum);
}

ElfHead::~ElfHead() {
  if (data_ != nullptr) munmap(const_cast<char *>(data_), size_);
}

std::span<const char> ElfHead::bytes(std::uint64_t offset, std::uint64_t size) const {
  if (offset > size_ || size > size_ - offset) return {};
  return {data_ + offset, size};
}

std::string_view ElfHead::text(std::uint64_t offset) const {
  if (offset >= size_) return {};
  return {data_ + offset, strnlen(data_ + offset, size_ - offset)};
}

std::uint64_t ElfHead::offset_of(std::uint64_t address) const {
  for (const Segment &s : segments_)
    if (address >= s.address && address - s.address < s.size) return address - s.address + s.offset;
  return size_;
}

void ElfHead::read_dynamic(std::uint64_t offset, std::uint64_t size) {
  std::uint64_t strings = 0, strings_size = 0, symbols = 0, gnu_hash = 0;
  std::vector<std::uint64_t> needed;
  std::uint64_t path = 0;
  const auto raw = bytes(offset, size);
  for (std::size_t at = 0; at + sizeof(Elf64_Dyn) <= raw.size(); at += sizeof(Elf64_Dyn)) {
    Elf64_Dyn d;
    std::memcpy(&d, raw.data() + at, sizeof(d));
    if (d.d_tag == DT_NULL) break;
    if (d.d_tag == DT_NEEDED) needed.push_back(d.d_un.d_val);
    if (d.d_tag == DT_STRTAB) strings = d.d_un.d_ptr;
    if (d.d_tag == DT_STRSZ) strings_size = d.d_un.d_val;
    if (d.d_tag == DT_SYMTAB) symbols = d.d_un.d_ptr;
    if (d.d_tag == DT_GNU_HASH) gnu_hash = d.d_un.d_ptr;
    if (d.d_tag == DT_RPATH || d.d_tag == DT_RUNPATH) path = d.d_un.d_val;
  }
  const std::uint64_t start = offset_of(strings);
  names_ = bytes(start, strings_size);
  for (const std::uint64_t n : needed) needed_.emplace_back(text(start + n));
  // Symbols that others may look up are the last ones; strings stand behind all.
  std::uint32_t first_hashed = 0;
  if (const auto head = bytes(offset_of(gnu_hash), 2 * sizeof(first_hashed));
      gnu_hash != 0 && !head.empty())
    std::memcpy(&first_hashed, head.data() + sizeof(first_hashed), sizeof(first_hashed));
  if (symbols != 0)
    imports_ = bytes(offset_of(symbols), first_hashed > 1    ? first_hashed * sizeof(Elf64_Sym)
                                         : strings > symbols ? strings - symbols
                                                             : 0);
  if (path != 0) run_path_ = text(start + path);
}

void ElfHead::read_notes(std::uint64_t offset, std::uint64_t size) {
  const auto raw = bytes(offset, size);
  for (std::size_t at = 0; at + sizeof(Elf64_Nhdr) <= raw.size();) {
    Elf64_Nhdr note;
    std::memcpy(&note, raw.data() + at, sizeof(note));
    const std::size_t name = at + sizeof(note);
    const std::size_t content = name + ((note.n_namesz + std::size_t{3}) & ~std::size_t{3});
    const std::size_t end = content + ((note.n_descsz + std::size_t{3}) & ~std::size_t{3});
    if (end > raw.size() || end <= at) return;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
        std::memcmp(raw.data() + name, "GNU", 4) == 0)
      for (std::size_t i = 0; i < note.n_descsz; ++i)
        build_id_ += fmt::format("{:02x}", static_cast<unsigned char>(raw[content + i]));
    at = end;
  }
}

void ElfHead::read_symbols(std::uint64_t sections, unsigned count) {
  const auto section = [&](unsigned i) {
    Elf64_Shdr s{};
    const auto raw = bytes(sections + std::uint64_t{i} * sizeof(s), sizeof(s));
    if (i < count && !raw.empty()) std::memcpy(&s, raw.data(), sizeof(s));
    return s;
  };
  for (unsigned i = 0; i < count; ++i) {
    const Elf64_Shdr s = section(i);
    if (s.sh_type != SHT_SYMTAB) continue;
    const Elf64_Shdr names = section(s.sh_link);
    symbols_ = bytes(s.sh_offset, s.sh_size);
    symbol_names_ = bytes(names.sh_offset, names.sh_size);
  }
}

bool ElfHead::defines_function(std::string_view name) const {
  for (std::size_t at = 0; at + sizeof(Elf64_Sym) <= symbols_.size(); at += sizeof(Elf64_Sym)) {
    Elf64_Sym s;
    std::memcpy(&s, symbols_.data() + at, sizeof(s));
    if (s.st_shndx == SHN_UNDEF || ELF64_ST_TYPE(s.st_info) != STT_FUNC) continue;
    if (s.st_name >= symbol_names_.size()) continue;
    const char *found = symbol_names_.data() + s.st_name;
    if (name == std::string_view(found, strnlen(found, symbol_names_.size() - s.st_name)))
      return true;
  }
  return false;
}

bool ElfHead::needs(std::string_view library) const {
  return std::find(needed_.begin(), needed_.end(), library) != needed_.end();
}

std::vector<std::string_view> ElfHead::imports() const {
  std::vector<std::string_view> out;
  for (std::size_t at = 0; at + sizeof(Elf64_Sym) <= imports_.size(); at += sizeof(Elf64_Sym)) {
    Elf64_Sym s;
    std::memcpy(&s, imports_.data() + at, sizeof(s));
    if (s.st_shndx != SHN_UNDEF || s.st_name == 0 || s.st_name >= names_.size()) continue;
    out.push_back(text(static_cast<std::uint64_t>(names_.data() - data_) + s.st_name));
  }
  return out;
}

bool ElfHead::has_name_with(std::string_view text) const { return contains(names_, text); }

bool ElfHead::has_constant(std::string_view text) const {
  return has_constant_with('\0' + std::string(text) + '\0');
}

bool ElfHead::has_constant_with(std::string_view part) const {
  constexpr std::uint64_t portion = std::uint64_t{16} << 20;
  for (const Segment &s : segments_)
    for (std::uint64_t at = 0; s.constant && at < s.size; at += portion) {
      if (contains(bytes(s.offset + at, std::min(portion + part.size(), s.size - at)), part))
        return true;
      // Nothing of it is read again.
      if (s.size > portion) madvise(const_cast<char *>(data_), size_, MADV_DONTNEED);
    }
  return false;
}

bool has_own_libibverbs(const ElfHead &program) {
  if (program.needs("libibverbs.so.1")) return false;
  // What its code calls and what it reads, in all releases.
  for (const std::string_view import : {"madvise", "getrlimit", "readdir"})
    if (!program.has_name_with(import)) return false;
  for (const std::string_view text :
       {"%s/class/infiniband_verbs", "RDMAV_FORK_SAFE", "RDMAV_HUGEPAGES_SAFE",
        "libibverbs: Warning: no userspace device-specific driver found for %s\n"})
    if (!program.has_constant(text)) return false;
  return program.is_stripped() || program.defines_function("ibv_get_device_list");
}

}  // namespace ibvexp::tool
