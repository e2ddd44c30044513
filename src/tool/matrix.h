// Writes the compatibility tables for people (Markdown) and programs (JSON).
#pragma once

#include <string>

namespace ibvexp::tool {

std::string matrix_markdown();
std::string matrix_json();

// The rows of the migration guide, and where the matrix answers them.
std::string guide_markdown();

}  // namespace ibvexp::tool
