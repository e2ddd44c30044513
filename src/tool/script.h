// The programs that a shell script starts, as far as its text decides it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ibvexp::tool {

struct Started {
  std::vector<std::filesystem::path> programs;  // they are there
  // Why there may be others: of a name without a file, or a variable whose value does not show.
  std::string unknown;
};

// Relative names are looked up in the script's folder, or where a "cd" before them leads. Nothing
// of it is executed. Scripts of other interpreters start nothing.
Started started_by(const std::filesystem::path &script, std::string_view text);

}  // namespace ibvexp::tool
