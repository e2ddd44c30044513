#pragma once

#include <string>

namespace ibvexp::migrate {

// Prints what changes in a file, as diff -u does. Throws if there is no diff.
void print_diff(const std::string &path, const std::string &text);

}  // namespace ibvexp::migrate
