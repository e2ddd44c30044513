// Programs that load libibverbs themselves and look its functions up by name (spead2,
// Python's ctypes) would bypass this library: contexts without a table, and rdma-core's
// functions for objects that are not rdma-core's. dlopen() gives them this library instead; dlsym()
// finds in it the functions of libibverbs and libmlx5, too, which it is linked with. (Not on AArch64.)
#ifdef __x86_64__
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/opener.h"

namespace ibvexp {

namespace {

// Names that are replaced. A name with a path means the program's own file.
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

// The function that opens the library of this name.
extern "C" [[gnu::used]] ibvexp::OpenLibrary *ibvexp_opener_of(const char *name) noexcept {
  using namespace ibvexp;
  const bool is_behind = name != nullptr && std::ranges::count(behind_this, name) != 0;
  return is_behind ? open_this : real_dlopen();
}

// void *dlopen(const char *name, int flags): asks ibvexp_opener_of() which function to use, with
// both arguments saved on the stack (and eight bytes more, for its 16-byte alignment). Then jumps
// there instead of calling: the C library searches the run path of its caller, which it finds by
// the return address.
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
