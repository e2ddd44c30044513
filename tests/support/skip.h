// A test case that cannot be run here says so and is counted: Catch2 2.x has no SKIP().
#pragma once

#include <string_view>

namespace support {

// Counts the running test case as skipped. main() prints how many were, and exits with 77 (skipped)
// if no other was run. Thread safety: the test's own thread only.
void skip_test(std::string_view reason);

}  // namespace support

// Ends the test case that it stands in.
#define SKIP_IF(condition, reason) \
  do {                             \
    if (condition) {               \
      support::skip_test(reason);  \
      return;                      \
    }                              \
  } while (false)
