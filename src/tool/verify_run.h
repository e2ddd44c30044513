// How ibvexp verify starts programs: quietly, with what makes them find the device.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace ibvexp::tool::verify {

// A folder of our own, gone at the end.
struct Folder {
  std::filesystem::path path;
  Folder();
  ~Folder();
  Folder(const Folder &) = delete;
  Folder &operator=(const Folder &) = delete;
};

std::string read_file(const std::filesystem::path &file);

using Environment = std::vector<std::pair<std::string, std::string>>;

struct Target {
  bool soft;
  std::string device;  // IBVEXP_DEVICE; empty: the only one
  std::string link;    // "ib" or "eth"
};

// With this library preloaded, and the software HCA if that is meant. `fabric` is its.
Environment environment_of(const Target &target, const std::string &fabric,
                           const std::string &beyond);

// The arguments of /bin/sh that run a program with these variables, and with what it
// prints in `output`. Through env(1) and timeout(1): a check that hangs is one that fails.
std::vector<std::string> quiet_command(const Environment &variables,
                                       const std::vector<std::string> &command, int seconds,
                                       const std::filesystem::path &output);

// Runs that; returns the status as waitpid() does.
int run_quietly(const Environment &variables, const std::vector<std::string> &command, int seconds,
                const std::filesystem::path &output);

// On a terminal, one line of what runs; without a name the line goes.
void show_progress(const Target &target, const std::string &name);

}  // namespace ibvexp::tool::verify
