#include "base/real.h"

#include <dlfcn.h>

#include <string_view>

#include "base/opener.h"

namespace ibvexp {

namespace {

const char *library_of(std::string_view name) {
  if (name.starts_with("mlx5dv_")) return "libmlx5.so.1";
  if (name.starts_with("rdma_")) return "librdmacm.so.1";
  return "libibverbs.so.1";
}

void *find_in(void *where, const char *name, const char *version) {
  return version != nullptr ? ::dlvsym(where, name, version) : ::dlsym(where, name);
}

}  // namespace

void *find_real(const char *name, const char *version) {
  if (void *next = find_in(RTLD_NEXT, name, version)) return next;
  // Not in our scope: the library came in before us or privately. It is loaded
  // already, or nobody could have called us with an object of it.
  void *library = real_dlopen()(library_of(name), RTLD_LAZY | RTLD_NOLOAD);
  return library != nullptr ? find_in(library, name, version) : nullptr;
}

OpenLibrary *real_dlopen() {
  static auto *const found = reinterpret_cast<OpenLibrary *>(::dlsym(RTLD_NEXT, "dlopen"));
  return found;
}

std::atomic<const Real *> known_real{nullptr};

const Real &find_all_real() {
  static const Real found = [] {
    Real r{};
#define IBVEXP_REAL_LOAD(name, version) \
  r.name = reinterpret_cast<decltype(r.name)>(find_real(#name, version));
    IBVEXP_REAL_FUNCTIONS(IBVEXP_REAL_LOAD)
#undef IBVEXP_REAL_LOAD
    return r;
  }();
  known_real.store(&found, std::memory_order_release);
  return found;
}

}  // namespace ibvexp
