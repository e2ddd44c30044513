// An object file that is not linked yet, laid out as a linker would: sections one
// behind the other, calls of functions elsewhere through stubs of ours. What debug
// information says of addresses does not fit any more, names of symbols do.
#include <gelf.h>
#include <libelf.h>

#include <cstring>

#include "tool/audit/binary/elf_image.h"

namespace ibvexp::audit {
namespace {

constexpr std::uint64_t first_address = 0x1000;

template <class T>
void put(std::span<std::uint8_t> bytes, std::uint64_t at, T value) {
  if (at <= bytes.size() && sizeof value <= bytes.size() - at)
    std::memcpy(bytes.data() + at, &value, sizeof value);
}

// jmp *word(%rip), as in a procedure linkage table, for each name.
struct Stubs {
  static constexpr std::size_t stub_bytes = 16, word_bytes = 8;
  std::uint64_t stubs_at = 0, words_at = 0;
  std::map<std::string, std::size_t, std::less<>> numbers;

  std::size_t number(std::string_view name) {
    return numbers.try_emplace(std::string(name), numbers.size()).first->second;
  }
  std::uint64_t stub(std::size_t n) const { return stubs_at + n * stub_bytes; }
  std::uint64_t word(std::size_t n) const { return words_at + n * word_bytes; }

  std::vector<std::uint8_t> code() const {
    std::vector<std::uint8_t> out(numbers.size() * stub_bytes, 0xcc);
    for (std::size_t n = 0; n < numbers.size(); ++n) {
      const auto distance = static_cast<std::int32_t>(word(n) - (stub(n) + 6));
      out[n * stub_bytes] = 0xff;
      out[n * stub_bytes + 1] = 0x25;
      put<std::int32_t>(out, n * stub_bytes + 2, distance);
    }
    return out;
  }
};

}  // namespace

void ElfImage::read_object_file() {
  std::vector<std::uint64_t> addresses;  // of sections; 0 for those without
  std::vector<std::vector<std::uint8_t> *> contents;
  std::uint64_t next = first_address;
  std::size_t count = 0;
  if (elf_getshdrnum(elf_, &count) != 0) throw InputError("damaged ELF file: no sections");
  addresses.resize(count);
  contents.resize(count);
  // What relocations change is copied; other sections may be as large as libicudata's.
  std::vector<char> relocated(count);
  for (std::size_t i = 1; i < count; ++i) {
    GElf_Shdr header;
    if (gelf_getshdr(elf_getscn(elf_, i), &header) != nullptr && header.sh_type == SHT_RELA &&
        header.sh_info < count)
      relocated[header.sh_info] = 1;
  }
  Elf_Scn *symbol_section = nullptr;
  for (std::size_t i = 1; i < count; ++i) {
    Elf_Scn *section = elf_getscn(elf_, i);
    GElf_Shdr header;
    if (section == nullptr || gelf_getshdr(section, &header) == nullptr)
      throw InputError("damaged ELF file: section " + std::to_string(i) + " is missing");
    if (header.sh_type == SHT_SYMTAB) symbol_section = section;
    if ((header.sh_flags & SHF_ALLOC) == 0 || header.sh_type == SHT_NOBITS || header.sh_size == 0)
      continue;
    const Elf_Data *data = elf_rawdata(section, nullptr);
    if (data == nullptr || data->d_buf == nullptr)
      throw InputError("truncated ELF file: a section ends behind the end of the file");
    const std::uint64_t alignment = header.sh_addralign > 1 ? header.sh_addralign : 1;
    next = (next + alignment - 1) / alignment * alignment;
    const auto *bytes = static_cast<const std::uint8_t *>(data->d_buf);
    std::span<const std::uint8_t> content(bytes, data->d_size);
    if (relocated[i] != 0) {
      contents[i] = &laid_out_.emplace_back(bytes, bytes + data->d_size);
      content = *contents[i];
    }
    addresses[i] = next;
    segments_.push_back({next, content, (header.sh_flags & SHF_EXECINSTR) != 0,
                         (header.sh_flags & SHF_WRITE) != 0});
    next += content.size();
  }
  if (symbol_section == nullptr) return;

  GElf_Shdr table;
  Elf_Data *data = elf_getdata(symbol_section, nullptr);
  if (data == nullptr || gelf_getshdr(symbol_section, &table) == nullptr || table.sh_entsize == 0)
    return;
  // Where each symbol is, 0 if elsewhere, and the number of its stub then.
  std::vector<std::uint64_t> defined;
  std::vector<std::size_t> stub_of;
  Stubs stubs;
  for (int i = 0; i < static_cast<int>(table.sh_size / table.sh_entsize); ++i) {
    GElf_Sym s;
    std::uint64_t address = 0;
    std::size_t stub = 0;
    if (gelf_getsym(data, i, &s) != nullptr) {
      const char *text = elf_strptr(elf_, table.sh_link, s.st_name);
      const std::string_view name = text != nullptr ? text : "";
      if (s.st_shndx == SHN_UNDEF && !name.empty()) {
        imports_.emplace_back(name);
        stub = stubs.number(name);
      } else if (s.st_shndx < count && addresses[s.st_shndx] != 0) {
        address = addresses[s.st_shndx] + s.st_value;
        const auto type = GELF_ST_TYPE(s.st_info);
        if (!name.empty() && (type == STT_FUNC || type == STT_OBJECT))
          symbols_.push_back({name, address, s.st_size, type == STT_FUNC});
      }
    }
    defined.push_back(address);
    stub_of.push_back(stub);
  }

  stubs.stubs_at = (next + 15) / 16 * 16;
  const std::size_t names = stubs.numbers.size();
  stubs.words_at = stubs.stubs_at + names * Stubs::stub_bytes;
  segments_.push_back({stubs.stubs_at, laid_out_.emplace_back(stubs.code()), true, false});
  segments_.push_back(
      {stubs.words_at, laid_out_.emplace_back(std::vector<std::uint8_t>(names * 8)), false, true});
  for (const auto &[name, number] : stubs.numbers) import_words_.emplace(stubs.word(number), name);
  if (!x86_64_) return;

  for (std::size_t i = 1; i < count; ++i) {
    Elf_Scn *section = elf_getscn(elf_, i);
    GElf_Shdr header;
    if (gelf_getshdr(section, &header) == nullptr || header.sh_type != SHT_RELA ||
        header.sh_info >= count || contents[header.sh_info] == nullptr)
      continue;
    Elf_Data *relocations = elf_getdata(section, nullptr);
    if (relocations == nullptr || header.sh_entsize == 0) continue;
    std::vector<std::uint8_t> &bytes = *contents[header.sh_info];
    for (int n = 0; n < static_cast<int>(header.sh_size / header.sh_entsize); ++n) {
      GElf_Rela r;
      if (gelf_getrela(relocations, n, &r) == nullptr) break;
      const std::size_t symbol = GELF_R_SYM(r.r_info);
      if (symbol >= defined.size()) continue;
      const std::uint64_t here = addresses[header.sh_info] + r.r_offset;
      const bool elsewhere = defined[symbol] == 0;
      const auto addend = static_cast<std::uint64_t>(r.r_addend);
      const std::uint64_t target =
          (elsewhere ? stubs.stub(stub_of[symbol]) : defined[symbol]) + addend;
      switch (GELF_R_TYPE(r.r_info)) {
        case R_X86_64_PC32:
        case R_X86_64_PLT32:
          put(bytes, r.r_offset, static_cast<std::uint32_t>(target - here));
          break;
        case R_X86_64_GOTPCREL:
        case R_X86_64_GOTPCRELX:
        case R_X86_64_REX_GOTPCRELX:
          if (elsewhere)
            put(bytes, r.r_offset,
                static_cast<std::uint32_t>(stubs.word(stub_of[symbol]) + addend - here));
          break;
        case R_X86_64_64:
          put(bytes, r.r_offset, target);
          if (!elsewhere && executable_at(target)) code_pointers_.push_back(target);
          break;
        case R_X86_64_32:
        case R_X86_64_32S: put(bytes, r.r_offset, static_cast<std::uint32_t>(target)); break;
        default: break;
      }
    }
  }
}

}  // namespace ibvexp::audit
