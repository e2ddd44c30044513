// Commands such as sudo and su, which start other programs without the library.
#pragma once

#include <string>

#include "tool/afterword.h"

namespace ibvexp::tool {

// What to type in the place of `ibvexp run -- sudo PROGRAM`: the launcher with `ibvexp run` behind
// it. kind is that of programs.def. Empty if the command does not show the program.
std::string behind_launcher(const std::string &kind, const RunCommand &command);

}  // namespace ibvexp::tool
