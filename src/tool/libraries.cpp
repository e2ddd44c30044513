#include "tool/libraries.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <stdexcept>

namespace fs = std::filesystem;

namespace ibvexp::tool {

namespace {

// The first of some places, relative to the executable's folder, that exists.
fs::path find(const char *name, std::initializer_list<const char *> places) {
  const fs::path here = own_path().parent_path();
  for (const char *place : places) {
    std::error_code error;
    fs::path found = fs::weakly_canonical(here / place / name, error);
    if (error || !fs::is_regular_file(found, error)) continue;
    // Preloaded, it would be left out.
    if (access(found.c_str(), R_OK) != 0)
      throw std::runtime_error(fmt::format("{}: {}", found.string(), std::strerror(errno)));
    return found;
  }
  throw std::runtime_error(fmt::format("{} is not installed beside {}", name, here.string()));
}

}  // namespace

void put_in_front(const char *variable, const std::string &list) {
  const char *before = std::getenv(variable);
  const bool empty = before == nullptr || *before == '\0';
  setenv(variable, (empty ? list : list + ":" + before).c_str(), 1);
}

fs::path own_path() {
  const fs::path launcher = program_invocation_name;
  return launcher.is_absolute() ? launcher : running_file();
}

fs::path running_file() { return fs::read_symlink("/proc/self/exe"); }

// LIBDIR_FROM_BIN and its like lead from the installed executable to what it needs.
fs::path find_libibverbs_exp() { return find("libibverbs_exp.so.1", {"../exp", LIBDIR_FROM_BIN}); }
fs::path find_libsofthca() {
  return find("libsofthca.so", {"../softhca/preload", SOFTHCA_FROM_BIN});
}

fs::path find_follow() { return find("libibvexp_follow.so", {".", LIBEXEC_FROM_BIN}); }

fs::path find_checks() { return find("ibvexp-checks", {"../../tests/e2e", LIBEXEC_FROM_BIN}); }

fs::path find_pairs() {
  return find("ibvexp-pairs.txt", {"../../tests/samples", LIBEXEC_FROM_BIN});
}

fs::path find_vm() { return find("ibvexp-vm", {"vm", LIBEXEC_FROM_BIN "/vm"}); }

fs::path find_migrate() {
  try {
    return find("ibvexp-migrate", {"migrate", "."});
  } catch (const std::exception &e) {
    throw std::runtime_error(fmt::format(
        "{}; it is in the package ibvexp-migrate, and built where libclang-14-dev or newer is",
        e.what()));
  }
}

}  // namespace ibvexp::tool
