// What was converted and what is left, for people and programs.
#pragma once

#include <string>

#include "tool/migrate/session.h"

namespace ibvexp::migrate {

std::size_t line_of(const File &file, std::size_t offset);

// uses: places that the flags compile, of which some are left. findings: what is said about
// these and about places that the flags leave out; lost are those of Kind::lost.
struct Count {
  std::size_t uses = 0, left = 0, not_compiled = 0, findings = 0, lost = 0;
  std::size_t converted() const { return uses - left; }
  double percent() const;
};
Count count(const Files &files);

// Lines of build files that are left.
std::size_t left_in(const Files &build_files);

// One line per finding, as compilers write them, then the sum.
std::string summary(const Outcome &outcome);
std::string as_json(const Outcome &outcome);
std::string as_html(const Outcome &outcome);

}  // namespace ibvexp::migrate
