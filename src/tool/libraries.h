// Where the libraries that belong to this ibvexp are: beside it in a build
// folder, or installed.
#pragma once

#include <filesystem>
#include <string>

namespace ibvexp::tool {

// Throw std::runtime_error when there is none.
std::filesystem::path find_libibverbs_exp();
std::filesystem::path find_libsofthca();
// What preloads into the children of a program, too.
std::filesystem::path find_follow();
// The program of the end-to-end checks.
std::filesystem::path find_checks();
// The list of the programs that talk between two hosts; they lie beside it.
std::filesystem::path find_pairs();
// The program that runs virtual machines.
std::filesystem::path find_vm();
// The program that rewrites sources. Throws when it was not built or installed.
std::filesystem::path find_migrate();

// Puts a list in front of what a variable of the environment has, with a colon.
void put_in_front(const char *variable, const std::string &list);

// The command, to be started again: the launcher, which names itself in argv[0].
std::filesystem::path own_path();
// The file that this process runs. Unlike own_path() it starts under the LD_PRELOAD and
// LD_LIBRARY_PATH of the environment.
std::filesystem::path running_file();

}  // namespace ibvexp::tool
