// What is known about single programs: programs.def and the user's file.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace ibvexp::tool {

struct Known {
  std::string name;  // of the entry
  // The keys of programs.def.
  std::map<std::string, std::string> keys;

  std::string at(const std::string &key) const {
    const auto found = keys.find(key);
    return found == keys.end() ? "" : found->second;
  }
  // Title, reason, and what to do, in one line.
  std::string sentence() const;
  // Whether a run that failed so may have had it. wait_status is that of the program.
  bool explains(int wait_status) const;
};

// Those that are about a program of these files, its own and its libraries', with these
// arguments. Throws runtime_error for a file of the user's that cannot be read.
std::vector<Known> known_about(const std::vector<std::filesystem::path> &files,
                               const std::vector<std::string> &arguments);

}  // namespace ibvexp::tool
