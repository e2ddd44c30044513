// The machine that this build is for, and with it the library beside it.
#pragma once

#include <elf.h>

namespace ibvexp::tool {

struct Machine {
  unsigned elf;  // e_machine, of 64-bit files
  const char *name;
};

#if defined(__x86_64__)
inline constexpr Machine own_machine{EM_X86_64, "x86-64"};
#elif defined(__aarch64__)
inline constexpr Machine own_machine{EM_AARCH64, "aarch64"};
#else
#error "ibvexp is for x86-64 and AArch64"
#endif

}  // namespace ibvexp::tool
