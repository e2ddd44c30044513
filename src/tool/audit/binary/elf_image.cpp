#include "tool/audit/binary/elf_image.h"

#include <fcntl.h>
#include <gelf.h>
#include <libelf.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace ibvexp::audit {
namespace {

std::string machine_name(unsigned machine, unsigned elf_class) {
  switch (machine) {
    case EM_X86_64: return elf_class == ELFCLASS64 ? "x86-64" : "x32";
    case EM_386: return "i386";
    case EM_AARCH64: return "aarch64";
    case EM_PPC64: return "ppc64";
    case EM_S390: return "s390";
    case EM_RISCV: return "riscv";
    default: return "machine " + std::to_string(machine);
  }
}

// Known to elf.h since glibc 2.36.
constexpr Elf64_Sxword dt_relrsz = 35, dt_relr = 36;

template <class T>
bool read(std::span<const std::uint8_t> bytes, std::uint64_t index, T &out) {
  if (index >= bytes.size() / sizeof(T)) return false;
  std::memcpy(&out, bytes.data() + index * sizeof(T), sizeof(T));
  return true;
}

}  // namespace

ElfImage::ElfImage(const std::string &path) : path_(path) {
  static const bool version_is_fine = elf_version(EV_CURRENT) != EV_NONE;
  if (!version_is_fine) throw InputError("libelf is too old");
  fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd_ < 0) throw InputError(std::strerror(errno));
  try {
    struct stat st {};
    fstat(fd_, &st);
    file_size_ = static_cast<std::uint64_t>(st.st_size);
    if (file_size_ <= read_whole) read_contents();
    elf_ = contents_ ? elf_memory(contents_.get(), file_size_)
                     : elf_begin(fd_, ELF_C_READ_MMAP, nullptr);
    GElf_Ehdr header;
    if (elf_ == nullptr || elf_kind(elf_) != ELF_K_ELF || gelf_getehdr(elf_, &header) == nullptr)
      throw InputError("damaged ELF file: no usable header");
    machine_ = machine_name(header.e_machine, header.e_ident[EI_CLASS]);
    x86_64_ = header.e_machine == EM_X86_64 && header.e_ident[EI_CLASS] == ELFCLASS64;
    arm64_ = header.e_machine == EM_AARCH64 && header.e_ident[EI_CLASS] == ELFCLASS64 &&
             header.e_ident[EI_DATA] == ELFDATA2LSB;
    program_ = fixed_ = header.e_type == ET_EXEC;
    entry_ = header.e_entry;
    if (header.e_shoff > file_size_)
      throw InputError("truncated ELF file: it ends in front of its section headers");
    if (header.e_ident[EI_DATA] != ELFDATA2LSB) return;  // named, not analysed
    object_file_ = header.e_type == ET_REL;
    if (object_file_) {
      read_object_file();
      symbols_read_ = true;
      return;
    }
    read_segments();
  } catch (...) {
    elf_end(elf_);
    close(fd_);
    throw;
  }
}

void ElfImage::read_contents() {
  contents_ = std::make_unique_for_overwrite<char[]>(file_size_);
  std::uint64_t done = 0;
  while (done < file_size_) {
    const ssize_t n =
        pread(fd_, contents_.get() + done, file_size_ - done, static_cast<off_t>(done));
    if (n < 0) throw InputError(std::strerror(errno));
    if (n == 0) throw InputError("truncated ELF file: it ends while it is read");
    done += static_cast<std::uint64_t>(n);
  }
}

ElfImage::~ElfImage() {
  elf_end(elf_);
  close(fd_);
}

void ElfImage::read_segments() {
  std::size_t count = 0, raw_size = 0;
  const auto *raw = reinterpret_cast<const std::uint8_t *>(elf_rawfile(elf_, &raw_size));
  if (raw == nullptr || elf_getphdrnum(elf_, &count) != 0)
    throw InputError("damaged ELF file: no program headers");
  std::uint64_t dynamic = 0;
  for (std::size_t i = 0; i < count; ++i) {
    GElf_Phdr p;
    if (gelf_getphdr(elf_, static_cast<int>(i), &p) == nullptr)
      throw InputError("damaged ELF file: program header " + std::to_string(i) + " is missing");
    if (p.p_type == PT_INTERP) program_ = interpreted_ = true;
    if (p.p_type == PT_DYNAMIC) dynamic = p.p_vaddr;
    if (p.p_type == PT_GNU_EH_FRAME) eh_frame_hdr_ = p.p_vaddr;
    if (p.p_type != PT_LOAD) continue;
    if (p.p_offset > raw_size || p.p_filesz > raw_size - p.p_offset)
      throw InputError("truncated ELF file: a segment ends behind the end of the file");
    segments_.push_back({p.p_vaddr,
                         {raw + p.p_offset, p.p_filesz},
                         (p.p_flags & PF_X) != 0,
                         (p.p_flags & PF_W) != 0});
  }
  if (dynamic != 0) read_dynamic(dynamic);
}

void ElfImage::read_dynamic(std::uint64_t address) {
  if (gelf_getclass(elf_) != ELFCLASS64) return;
  const auto bytes = at(address);
  std::uint64_t strings = 0, symbols = 0, hash = 0, gnu_hash = 0, rela = 0, rela_size = 0;
  std::uint64_t plt = 0, plt_size = 0, packed = 0, packed_size = 0;
  std::vector<std::uint64_t> needed, paths;
  Elf64_Dyn d;
  for (std::uint64_t i = 0; read(bytes, i, d) && d.d_tag != DT_NULL; ++i) {
    switch (d.d_tag) {
      case DT_NEEDED: needed.push_back(d.d_un.d_val); break;
      case DT_RPATH:
      case DT_RUNPATH: paths.push_back(d.d_un.d_val); break;
      case DT_FLAGS_1: pie_ = (d.d_un.d_val & DF_1_PIE) != 0; break;
      case DT_STRTAB: strings = d.d_un.d_ptr; break;
      case DT_STRSZ: names_size_ = d.d_un.d_val; break;
      case DT_SYMTAB: symbols = d.d_un.d_ptr; break;
      case DT_HASH: hash = d.d_un.d_ptr; break;
      case DT_GNU_HASH: gnu_hash = d.d_un.d_ptr; break;
      case DT_RELA: rela = d.d_un.d_ptr; break;
      case DT_JMPREL: plt = d.d_un.d_ptr; break;
      case DT_PLTRELSZ: plt_size = d.d_un.d_val; break;
      case DT_RELASZ: rela_size = d.d_un.d_val; break;
      case dt_relr: packed = d.d_un.d_ptr; break;
      case dt_relrsz: packed_size = d.d_un.d_val; break;
      default: break;
    }
  }
  for (const auto offset : needed) needed_.emplace_back(text_at(strings + offset));
  for (const auto offset : paths) run_path_ = text_at(strings + offset);

  // The string table follows the symbol table; the number of symbols is said
  // nowhere else but in the hash table, which may be missing.
  std::uint64_t count = 0;
  if (hash != 0) {
    std::uint32_t chains = 0;
    if (read(at(hash), 1, chains)) count = chains;
  } else if (strings > symbols) {
    count = (strings - symbols) / sizeof(Elf64_Sym);
  }
  (void)gnu_hash;
  dynamic_symbols_ = symbols;
  dynamic_names_ = strings;
  const auto table = symbols == 0 ? std::span<const std::uint8_t>() : at(symbols);
  dynamic_count_ = std::min<std::uint64_t>(count, table.size() / sizeof(Elf64_Sym));
  Elf64_Sym s;
  for (std::uint64_t i = 1; i < dynamic_count_ && read(table, i, s); ++i) {
    if (s.st_shndx != SHN_UNDEF) continue;
    if (const std::string_view name = text_at(strings + s.st_name); !name.empty())
      imports_.emplace_back(name);
  }
  read_import_words(plt, plt_size, symbols, strings);
  read_import_words(rela, rela_size, symbols, strings);
  if (packed != 0) read_packed_relocations(packed, packed_size);
  if (rela == 0) return;
  const auto relocations = at(rela);
  Elf64_Rela r;
  for (std::uint64_t i = 0; i < rela_size / sizeof r && read(relocations, i, r); ++i)
    if (ELF64_R_TYPE(r.r_info) == (arm64_ ? R_AARCH64_RELATIVE : R_X86_64_RELATIVE) &&
        executable_at(static_cast<std::uint64_t>(r.r_addend)))
      code_pointers_.push_back(static_cast<std::uint64_t>(r.r_addend));
}

// An address, or bits for the 63 words behind those before. The words hold what they point to.
void ElfImage::read_packed_relocations(std::uint64_t packed, std::uint64_t size) {
  const auto add = [&](std::uint64_t word) {
    std::uint64_t target = 0;
    if (read(at(word), 0, target) && executable_at(target)) code_pointers_.push_back(target);
  };
  const auto entries = at(packed);
  std::uint64_t entry, next = 0;
  for (std::uint64_t i = 0; i < size / sizeof entry && read(entries, i, entry); ++i) {
    if (entry % 2 == 0) {
      add(entry);
      next = entry + sizeof entry;
      continue;
    }
    for (std::uint64_t bits = entry >> 1, word = next; bits != 0; bits >>= 1, word += sizeof entry)
      if (bits % 2 != 0) add(word);
    next += 63 * sizeof entry;
  }
}

void ElfImage::read_import_words(std::uint64_t relocations, std::uint64_t size,
                                 std::uint64_t symbols, std::uint64_t strings) {
  if (relocations == 0) return;
  const auto bytes = at(relocations);
  const auto table = at(symbols);
  Elf64_Rela r;
  Elf64_Sym s;
  for (std::uint64_t i = 0; i < size / sizeof r && read(bytes, i, r); ++i) {
    const auto type = ELF64_R_TYPE(r.r_info);
    if (type != (arm64_ ? R_AARCH64_JUMP_SLOT : R_X86_64_JUMP_SLOT) &&
        type != (arm64_ ? R_AARCH64_GLOB_DAT : R_X86_64_GLOB_DAT))
      continue;
    if (!read(table, ELF64_R_SYM(r.r_info), s) || s.st_shndx != SHN_UNDEF) continue;
    if (const std::string_view name = text_at(strings + s.st_name); !name.empty())
      import_words_.emplace(r.r_offset, name);
  }
}

std::string_view ElfImage::import_at(std::uint64_t address) const {
  const auto it = import_words_.find(address);
  return it == import_words_.end() ? std::string_view() : it->second;
}

const std::vector<NamedAddress> &ElfImage::symbols() const {
  if (!symbols_read_) {
    symbols_read_ = true;
    read_dynamic_symbols();
    read_section_symbols();
    release_pages();
  }
  return symbols_;
}

bool ElfImage::has_symbol_with(std::string_view text) const {
  const auto contains = [&](const void *bytes, std::size_t size) {
    return memmem(bytes, size, text.data(), text.size()) != nullptr;
  };
  const auto names = at(dynamic_names_);
  if (contains(names.data(), std::min<std::uint64_t>(names_size_, names.size()))) return true;
  Elf_Scn *section = nullptr;
  while ((section = elf_nextscn(elf_, section)) != nullptr) {
    GElf_Shdr header;
    if (gelf_getshdr(section, &header) == nullptr || header.sh_type != SHT_SYMTAB) continue;
    Elf_Scn *strings = elf_getscn(elf_, header.sh_link);
    const Elf_Data *data = strings != nullptr ? elf_rawdata(strings, nullptr) : nullptr;
    if (data != nullptr && data->d_buf != nullptr && contains(data->d_buf, data->d_size))
      return true;
  }
  return false;
}

void ElfImage::read_dynamic_symbols() const {
  const auto table = at(dynamic_symbols_);
  Elf64_Sym s;
  for (std::uint64_t i = 1; i < dynamic_count_ && read(table, i, s); ++i) {
    if (s.st_shndx == SHN_UNDEF) continue;
    if (const std::string_view name = text_at(dynamic_names_ + s.st_name); !name.empty())
      symbols_.push_back({name, s.st_value, s.st_size, ELF64_ST_TYPE(s.st_info) == STT_FUNC});
  }
}

// Only for the names of local symbols; all else comes from program headers.
void ElfImage::read_section_symbols() const {
  Elf_Scn *section = nullptr;
  while ((section = elf_nextscn(elf_, section)) != nullptr) {
    GElf_Shdr header;
    if (gelf_getshdr(section, &header) == nullptr || header.sh_type != SHT_SYMTAB) continue;
    Elf_Data *data = elf_getdata(section, nullptr);
    if (data == nullptr || header.sh_entsize == 0) continue;
    const int count = static_cast<int>(header.sh_size / header.sh_entsize);
    for (int i = 1; i < count; ++i) {
      GElf_Sym s;
      if (gelf_getsym(data, i, &s) == nullptr || s.st_shndx == SHN_UNDEF) continue;
      const char *name = elf_strptr(elf_, header.sh_link, s.st_name);
      const auto type = GELF_ST_TYPE(s.st_info);
      if (name != nullptr && *name != '\0' && (type == STT_FUNC || type == STT_OBJECT))
        symbols_.push_back({name, s.st_value, s.st_size, type == STT_FUNC});
    }
  }
}

void ElfImage::release_pages() const {
  // Other threads' processors hear of each time.
  if (file_size_ <= release_after) return;
  std::size_t size = 0;
  char *raw = elf_rawfile(elf_, &size);
  // Only a mapping begins with a page; a copy must be kept.
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  if (raw != nullptr && reinterpret_cast<std::uintptr_t>(raw) % page == 0)
    madvise(raw, size, MADV_DONTNEED);
}

std::span<const std::uint8_t> ElfImage::at(std::uint64_t address) const {
  for (const Segment &s : segments_)
    if (address >= s.address && address - s.address < s.bytes.size())
      return s.bytes.subspan(address - s.address);
  return {};
}

std::string_view ElfImage::text_at(std::uint64_t address) const {
  const auto bytes = at(address);
  const auto end = std::find(bytes.begin(), bytes.end(), std::uint8_t{0});
  if (end == bytes.end()) return {};
  return {reinterpret_cast<const char *>(bytes.data()),
          static_cast<std::size_t>(end - bytes.begin())};
}

bool ElfImage::executable_at(std::uint64_t address) const {
  for (const Segment &s : segments_)
    if (s.executable && address >= s.address && address - s.address < s.bytes.size()) return true;
  return false;
}

}  // namespace ibvexp::audit
