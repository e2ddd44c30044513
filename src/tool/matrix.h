// Writes the compatibility tables for people (Markdown) and programs (JSON).
#pragma once

#include <string>

namespace ibvexp::tool {

std::string matrix_markdown();
std::string matrix_json();

}  // namespace ibvexp::tool
