// Which release's private structures a program reads, before it runs.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ibvexp::tool {

struct LayoutReader {
  std::string file;     // of the program
  std::string release;  // 3.x or 4.x
};

// What the code of a program or of the files that are loaded with it shows. Only files that name
// verbs, and the program's own libraries beside them, are audited, and once: answers are kept in
// the user's cache by build ID.
std::optional<LayoutReader> find_layout(const std::filesystem::path &program,
                                        std::vector<std::filesystem::path> loaded);

}  // namespace ibvexp::tool
