#include "tool/verify_run.h"

#include <fmt/core.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string_view>

#include "tool/child.h"
#include "tool/libraries.h"
#include "tool/write_file.h"

namespace fs = std::filesystem;

namespace ibvexp::tool::verify {

Folder::Folder() {
  std::string name = (temporary_folder() / "ibvexp-verify-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr)
    throw std::runtime_error(fmt::format("cannot create {}: {}", name, std::strerror(errno)));
  path = name;
}

Folder::~Folder() {
  std::error_code error;
  fs::remove_all(path, error);
}

std::string read_file(const fs::path &file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

Environment environment_of(const Target &target, const std::string &fabric,
                           const std::string &beyond) {
  std::string preloaded = find_libibverbs_exp().string();
  if (target.soft) preloaded += ":" + find_libsofthca().string();
  Environment out = {
      {"LD_PRELOAD", preloaded}, {"IBVEXP_BEYOND", beyond}, {"IBVEXP_LOG_LEVEL", "error"}};
  if (target.soft) {
    out.push_back({"SOFTHCA_LINK", target.link});
    out.push_back({"SOFTHCA_FABRIC", fabric});
  } else {
    out.push_back({"IBVEXP_DEVICE", target.device});
  }
  return out;
}

std::vector<std::string> quiet_command(const Environment &variables,
                                       const std::vector<std::string> &command, int seconds,
                                       const fs::path &output) {
  std::vector<std::string> all = {
      "sh", "-c", "out=$1; shift; exec \"$@\" >\"$out\" 2>&1", "sh", output.string(), "env"};
  for (const auto &[name, value] : variables) all.push_back(fmt::format("{}={}", name, value));
  all.insert(all.end(), {"timeout", "-k", "5", std::to_string(seconds)});
  all.insert(all.end(), command.begin(), command.end());
  return all;
}

int run_quietly(const Environment &variables, const std::vector<std::string> &command, int seconds,
                const fs::path &output) {
  return run_program("/bin/sh", quiet_command(variables, command, seconds, output));
}

void show_progress(const Target &target, const std::string &name) {
  const char *type = std::getenv("TERM");
  if (isatty(STDERR_FILENO) == 0 || (type != nullptr && std::string_view(type) == "dumb")) return;
  if (name.empty()) fmt::print(stderr, "\r{:60}\r", "");
  else
    fmt::print(stderr, "\rverify: {:<20} {:<20}", target.soft ? "the software HCA" : target.device,
               name);
  std::fflush(stderr);
}

}  // namespace ibvexp::tool::verify
