// The program that is to run with the library preloaded: which file it is, and
// whether preloading can work.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>

namespace ibvexp::tool {

// As shells and env(1) answer.
inline constexpr int exit_refused = 125;  // with --fail-on-refused
inline constexpr int exit_cannot_run = 126;
inline constexpr int exit_not_found = 127;

struct CannotRun : std::runtime_error {
  CannotRun(int exit_status, const std::string &why) : runtime_error(why), status(exit_status) {}
  int status;
};

// The file that execvp() would take. Throws CannotRun.
std::filesystem::path find_program(const std::string &name);

// Throws CannotRun if the dynamic linker would not preload into it.
void check_preloadable(const std::filesystem::path &program);

}  // namespace ibvexp::tool
