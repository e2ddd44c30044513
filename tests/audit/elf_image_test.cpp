// What ElfImage reads of files that are made here.
#include "tool/audit/binary/elf_image.h"

#include <catch.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>

namespace ibvexp::audit {
namespace {

// One segment at address 0 with all of the file.
struct Packed {
  Elf64_Ehdr head{};
  std::array<Elf64_Phdr, 2> segments{};
  std::array<Elf64_Dyn, 3> dynamic{};
  std::array<std::uint64_t, 3> relocations{};
  std::array<std::uint64_t, 70> words{};

  Packed() {
    const auto at = [&](const void *member) {
      return static_cast<std::uint64_t>(static_cast<const char *>(member) -
                                        reinterpret_cast<const char *>(this));
    };
    for (int i = 0; i < SELFMAG; ++i) head.e_ident[i] = static_cast<unsigned char>(ELFMAG[i]);
    head.e_ident[EI_CLASS] = ELFCLASS64;
    head.e_ident[EI_DATA] = ELFDATA2LSB;
    head.e_ident[EI_VERSION] = EV_CURRENT;
    head.e_type = ET_DYN;
    head.e_machine = EM_X86_64;
    head.e_version = EV_CURRENT;
    head.e_ehsize = sizeof head;
    head.e_phoff = at(&segments);
    head.e_phentsize = sizeof segments[0];
    head.e_phnum = segments.size();
    segments[0] = {PT_LOAD, PF_R | PF_X, 0, 0, 0, sizeof *this, sizeof *this, 4096};
    segments[1] = {PT_DYNAMIC, PF_R,           at(&dynamic),   at(&dynamic),
                   0,          sizeof dynamic, sizeof dynamic, 8};
    dynamic[0] = {36, {at(&relocations)}};
    dynamic[1] = {35, {sizeof relocations}};
    // The first word, the second and the 63rd behind it, and the first of the 63 after those.
    relocations = {at(&words), 1 | 1U << 1 | std::uint64_t{1} << 63, 1 | 1U << 1};
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = 8 * i;
    words[63] = 1 << 20;  // no code
  }
};

std::vector<std::uint64_t> code_pointers(const Packed &file) {
  const int fd = memfd_create("file", MFD_CLOEXEC);
  REQUIRE(write(fd, &file, sizeof file) == sizeof file);
  const ElfImage image("/proc/self/fd/" + std::to_string(fd));
  close(fd);
  return image.code_pointers();
}

}  // namespace

TEST_CASE("packed relative relocations point to code") {
  Packed file;
  CHECK(code_pointers(file) == std::vector<std::uint64_t>{0, 8, 8 * 64});
  file.words[63] = 8 * 63;
  CHECK(code_pointers(file) == std::vector<std::uint64_t>{0, 8, 8 * 63, 8 * 64});
  file.dynamic[1].d_un.d_val = sizeof(std::uint64_t);
  CHECK(code_pointers(file) == std::vector<std::uint64_t>{0});
}

}  // namespace ibvexp::audit
