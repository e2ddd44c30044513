// Conditional compilation, as it stands in the text.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

namespace ibvexp::migrate {

// Macros in the conditions around legacy names and headers, those of include guards left out.
std::set<std::string> macros_around_legacy(const std::string &text);

// A condition around a place: its line, and whether the place is in a branch behind the first.
struct Condition {
  std::string line;
  bool other_branch;
};
// From the outermost one, without include guards.
std::vector<Condition> conditions_at(const std::string &text, std::size_t offset);

// The text without definitions of the macros.
std::string without_definitions(const std::string &text, const std::set<std::string> &macros);

}  // namespace ibvexp::migrate
