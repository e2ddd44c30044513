// The library's log, on standard error.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

// What is logged meanwhile.
template <class Run>
std::string log_of(Run run) {
  std::FILE *const file = std::tmpfile();
  const int kept = dup(STDERR_FILENO);
  dup2(fileno(file), STDERR_FILENO);
  run();
  dup2(kept, STDERR_FILENO);
  close(kept);
  std::string said(4096, '\0');
  std::rewind(file);
  said.resize(std::fread(said.data(), 1, said.size(), file));
  std::fclose(file);
  return said;
}

// Whether what is ignored is logged.
[[maybe_unused]] bool informs() {
  const char *const level = std::getenv("IBVEXP_LOG_LEVEL");
  const std::string_view chosen = level != nullptr ? level : "warn";
  return chosen == "info" || chosen == "debug";
}

}  // namespace
