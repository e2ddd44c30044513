// The libraries that a program loads by name, as the dynamic linker looks for them.
#pragma once

#include "tool/elf_head.h"

namespace ibvexp::tool {

// Those that a file itself names, where they are found.
std::vector<std::filesystem::path> libraries_of(const std::filesystem::path &file);

// A program, what LD_PRELOAD names and all libraries that these load.
std::vector<std::filesystem::path> loaded_with(const std::filesystem::path &program);

}  // namespace ibvexp::tool
