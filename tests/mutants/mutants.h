// Which of the mutants in this build is alive: ALIVE_MUTANT in the environment,
// by number; none without it. In the copy of the sources that mutate.py writes,
// never in the library that is shipped.
#pragma once

#include <stdlib.h>

#ifdef __cplusplus
// Most functions never run in the compiler; two branches may differ in type.
#pragma GCC diagnostic ignored "-Wtautological-compare"
#pragma GCC diagnostic ignored "-Wextra"
#pragma GCC diagnostic ignored "-Wdangling-else"

inline int ibvexp_mutant = [] {
  const char *chosen = getenv("ALIVE_MUTANT");
  return chosen != nullptr ? atoi(chosen) : 0;
}();
// What the compiler evaluates is never changed: a static_assert sees the original.
#define IBVEXP_MUTANT(number) (!__builtin_is_constant_evaluated() && ibvexp_mutant == (number))
#endif
