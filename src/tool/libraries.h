// Where the libraries that belong to this ibvexp are: beside it in a build
// folder, or installed.
#pragma once

#include <filesystem>

namespace ibvexp::tool {

// Throw std::runtime_error when there is none.
std::filesystem::path find_libibverbs_exp();
std::filesystem::path find_libsofthca();
// The program of the end-to-end checks.
std::filesystem::path find_checks();
// The list of the programs that talk between two hosts; they lie beside it.
std::filesystem::path find_pairs();
// The program that rewrites sources. Throws when it was not built or installed.
std::filesystem::path find_migrate();

// This executable.
std::filesystem::path own_path();

}  // namespace ibvexp::tool
