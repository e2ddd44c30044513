// The libraries that a program loads by name, as the dynamic linker looks for them.
#pragma once

#include "tool/elf_head.h"

namespace ibvexp::tool {

// Those that a file itself names, where they are found.
std::vector<std::filesystem::path> libraries_of(const std::filesystem::path &file);

// rdma-core's own and ours, which have structures of libmlx5, rightly.
bool is_provider(const std::filesystem::path &library);

// A program, what LD_PRELOAD names and all libraries that these load.
std::vector<std::filesystem::path> loaded_with(const std::filesystem::path &program);

}  // namespace ibvexp::tool
