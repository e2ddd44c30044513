#include "tool/program.h"

#include <elf.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "tool/elf_head.h"
#include "tool/own_machine.h"

namespace fs = std::filesystem;

namespace ibvexp::tool {

namespace {

[[noreturn]] void refuse(const fs::path &program, const std::string &why) {
  throw CannotRun(exit_cannot_run, fmt::format("{} {}", program.string(), why));
}

bool is_executable(const fs::path &file) {
  struct stat st;
  return stat(file.c_str(), &st) == 0 && S_ISREG(st.st_mode) && access(file.c_str(), X_OK) == 0;
}

// The dynamic linker ignores LD_PRELOAD for programs that gain privileges.
void check_privileges(const fs::path &program) {
  struct stat st;
  if (stat(program.c_str(), &st) != 0) refuse(program, std::strerror(errno));
  const char *gains = (st.st_mode & S_ISUID) != 0   ? "is set-user-ID"
                      : (st.st_mode & S_ISGID) != 0 ? "is set-group-ID"
                      : getxattr(program.c_str(), "security.capability", nullptr, 0) > 0
                          ? "has file capabilities"
                          : nullptr;
  if (gains != nullptr)
    refuse(program, fmt::format("{}: the dynamic linker preloads nothing into such programs; "
                                "run a copy without it, or relink with -libverbs_exp",
                                gains));
}

// The dynamic linker that an ELF program names.
void check_linker(const fs::path &program, const std::string &linker) {
  if (linker.find("/ld-musl") != std::string::npos)
    refuse(program,
           "is linked with musl: its dynamic linker cannot load this library, which needs glibc; "
           "link the program anew with glibc");
  std::error_code error;
  if (!fs::exists(linker, error))
    refuse(program, fmt::format("asks for the dynamic linker {}, which is not here: it was built "
                                "for another system",
                                linker));
}

void check_elf(const fs::path &program, const ElfHead &elf) {
  if (elf.size() < elf.least_size())
    refuse(program, fmt::format("is cut off: it has {} bytes of at least {}; copy or build it anew",
                                elf.size(), elf.least_size()));
  if (elf.machine() != own_machine.elf)
    refuse(program, fmt::format("is no {0} program, and the library serves only those: build it "
                                "anew for {0}",
                                own_machine.name));
  if (elf.is_damaged()) refuse(program, "is a damaged ELF file; copy or build it anew");
  if (elf.interpreter().empty())
    refuse(program,
           "is statically linked: nothing can be preloaded into it; link it anew, "
           "dynamically or with libibverbs_exp");
  check_linker(program, elf.interpreter());
  if (has_own_libibverbs(elf))
    refuse(program,
           "contains its own copy of libibverbs (linked statically), which a preloaded library "
           "cannot replace; link it anew with the shared libibverbs or with -libverbs_exp");
}

using Start = char[EI_NIDENT];

bool is_elf(const Start &start) { return std::memcmp(start, ELFMAG, SELFMAG) == 0; }

// Its launcher starts the program inside of it.
bool is_appimage(const Start &start) { return std::memcmp(start + EI_ABIVERSION, "AI", 2) == 0; }

}  // namespace

fs::path find_program(const std::string &name) {
  if (name.find('/') != std::string::npos) {
    std::error_code error;
    if (!fs::exists(name, error))
      throw CannotRun(exit_not_found, fmt::format("{}: {}", name, std::strerror(ENOENT)));
    if (fs::is_directory(name, error)) refuse(name, "is a folder; name a program in it");
    if (!is_executable(name)) refuse(name, "is not executable: chmod +x " + name);
    return name;
  }
  const char *path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    fs::path candidate = fs::path(folder.empty() ? "." : folder) / name;
    if (is_executable(candidate)) return candidate;
  }
  throw CannotRun(
      exit_not_found,
      fmt::format("{}: not found in PATH{}", name,
                  is_executable(name) ? fmt::format("; did you mean ./{}?", name) : ""));
}

void check_preloadable(const fs::path &program) {
  check_privileges(program);
  std::ifstream file(program, std::ios::binary);
  Start start = {};
  file.read(start, sizeof(start));
  if (file.gcount() < SELFMAG) return;  // not readable, or tiny: the kernel decides
  file.clear();
  if (is_elf(start)) {
    const ElfHead elf(program);
    if (is_appimage(start) && elf.interpreter().empty())
      refuse(program,
             "is an AppImage, which is started without the library: take out what is "
             "inside with --appimage-extract, then ibvexp run -- squashfs-root/AppRun");
    return check_elf(program, elf);
  }
  if (start[0] != '#' || start[1] != '!') return;
  // A script: what counts is its interpreter.
  std::string line, interpreter;
  file.seekg(2);
  std::getline(file, line);
  std::istringstream(line) >> interpreter;
  std::error_code error;
  if (line.ends_with('\r'))
    refuse(program, fmt::format("is a script with Windows line ends: sed -i 's/\\r$//' {}",
                                program.string()));
  if (!fs::exists(interpreter, error))
    refuse(program,
           fmt::format(
               "is a script of {}, which does not exist: install it, or edit the first line of the "
               "script",
               interpreter));
  if (is_executable(interpreter)) check_privileges(interpreter);
  std::ifstream binary(interpreter, std::ios::binary);
  binary.read(start, sizeof(start));
  if (binary && is_elf(start)) check_elf(interpreter, ElfHead(interpreter));
}

}  // namespace ibvexp::tool
