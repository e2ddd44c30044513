// Writes the compatibility tables for people (Markdown) and programs (JSON).
#pragma once

#include <string>
#include <string_view>

namespace ibvexp::tool {

std::string matrix_markdown();
std::string matrix_json();

// One row, switch or variable in words, or as JSON. Throws runtime_error for a name that has none.
std::string matrix_lookup(std::string_view name);
std::string matrix_lookup_json(std::string_view name);

// The rows of the migration guide, and where the matrix answers them.
std::string guide_markdown();

}  // namespace ibvexp::tool
