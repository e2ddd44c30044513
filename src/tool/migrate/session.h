// Runs Clang over the sources: once to see what they use, once to collect edits,
// and once more to see whether the result compiles without the legacy header.
#pragma once

#include <string>
#include <vector>

#include "tool/migrate/edits.h"

namespace ibvexp::migrate {

struct Options {
  std::vector<std::string> sources;
  std::string build_dir;             // of compile_commands.json, or
  std::vector<std::string> flags;    // of the compiler
  std::vector<std::string> headers;  // folders with the legacy headers
  std::vector<std::string> own;      // folders with headers of the program
  std::string helper;                // folder of ibvexp_migrate.h
  bool use_helper = true;
};

struct Outcome {
  Files files, build_files;
  bool needs_mlx5 = false;           // the result calls libmlx5
  std::vector<std::string> unread;   // sources that Clang could not parse, with the reason
  std::vector<std::string> failing;  // what does not compile afterwards
};

Outcome migrate(const Options &options);

}  // namespace ibvexp::migrate
