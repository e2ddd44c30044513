// The C library's own dlopen(), which opens libibverbs, and not this library in its place
// (exp/open_library.cpp).
#pragma once

namespace ibvexp {

using OpenLibrary = void *(const char *name, int flags);
OpenLibrary *real_dlopen();

}  // namespace ibvexp
