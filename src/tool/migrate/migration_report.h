// What was converted and what is left, for people and programs.
#pragma once

#include <string>

#include "tool/migrate/session.h"

namespace ibvexp::migrate {

std::size_t line_of(const File &file, std::size_t offset);

// uses: those that the flags compile. findings, what is left, has the others as well; lost are
// those of Kind::lost.
struct Count {
  std::size_t uses = 0, converted = 0, not_compiled = 0, findings = 0, lost = 0;
  double percent() const;
};
Count count(const Files &files);

// One line per finding, as compilers write them, then the sum.
std::string summary(const Outcome &outcome);
std::string as_json(const Outcome &outcome);
std::string as_html(const Outcome &outcome);

}  // namespace ibvexp::migrate
