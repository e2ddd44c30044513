// Build files that ask for the experimental header, or link what the result needs.
#pragma once

#include <string>
#include <vector>

#include "tool/migrate/edits.h"
#include "tool/migrate/rules.h"

namespace ibvexp::migrate {

// Whether the result calls libmlx5.
bool needs_mlx5(const Files &files);

// Those beside the sources and in the folders above, up to that of the repository, with edits
// where one line does it and findings elsewhere. whole: nothing is left in the sources.
Files change_build_files(const std::vector<std::string> &sources, bool with_mlx5, bool whole,
                         const Rules &rules);

}  // namespace ibvexp::migrate
