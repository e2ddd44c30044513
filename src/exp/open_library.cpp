// Programs that load libibverbs themselves and look its functions up by name (spead2,
// Python's ctypes) would get past this library: contexts without a table, and rdma-core's
// functions for objects that are not rdma-core's. They get this library instead: a look-up
// in it goes on through those that it is linked with, so it has theirs, too. (Not on AArch64.)
#ifdef __x86_64__
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/opener.h"

namespace ibvexp {

namespace {

// As programs name them. A path means a file of the program's own.
constexpr std::array<std::string_view, 4> behind_this = {"libibverbs.so.1", "libibverbs.so",
                                                         "libmlx5.so.1", "libmlx5.so"};

void *open_this(const char *name, int flags) noexcept {
  static const char here = 0;
  Dl_info self{};
  const bool found = dladdr(&here, &self) != 0 && self.dli_fname != nullptr;
  return real_dlopen()(found ? self.dli_fname : name, flags);
}

}  // namespace

}  // namespace ibvexp

// Which function opens this one.
extern "C" [[gnu::used]] ibvexp::OpenLibrary *ibvexp_opener_of(const char *name) noexcept {
  using namespace ibvexp;
  const bool is_behind = name != nullptr && std::ranges::count(behind_this, name) != 0;
  return is_behind ? open_this : real_dlopen();
}

// void *dlopen(const char *name, int flags): which function it is to be is asked first, with both
// arguments on the stack meanwhile (and eight bytes more, since the stack is aligned to 16 at a
// call). Then a jump, and no call: the C library looks for a library as the run path of its caller
// says, and takes for its caller whoever is returned to.
asm(R"(
  .text
  .globl dlopen
  .type dlopen, @function
dlopen:
  .cfi_startproc
  endbr64
  push %rdi
  .cfi_adjust_cfa_offset 8
  push %rsi
  .cfi_adjust_cfa_offset 8
  sub $8, %rsp
  .cfi_adjust_cfa_offset 8
  call ibvexp_opener_of
  add $8, %rsp
  .cfi_adjust_cfa_offset -8
  pop %rsi
  .cfi_adjust_cfa_offset -8
  pop %rdi
  .cfi_adjust_cfa_offset -8
  jmp *%rax
  .cfi_endproc
  .size dlopen, .-dlopen
)");

#endif
