// The C library's functions that this library interposes, and how it defines its own.
//
// The C library's are looked up at their first use: other libraries may call us
// before our constructors run. A successful look-up does not allocate, and takes
// no lock that an allocator's hook may hold.
#pragma once

#include <atomic>

namespace softhca {

// The next definition of `name` after this library (RTLD_NEXT). Ends the process if
// there is none, which cannot happen in a call of the program.
void *next_definition(const char *name);

template <class F>
class Real {
 public:
  constexpr explicit Real(const char *name) : name_(name) {}

  template <class... Args>
  auto operator()(Args... args) {
    return get()(args...);
  }

 private:
  F *get() {
    void *f = function_.load(std::memory_order_relaxed);
    if (!f) [[unlikely]] {
      f = next_definition(name_);
      function_.store(f, std::memory_order_relaxed);
    }
    return reinterpret_cast<F *>(f);
  }
  const char *name_;
  std::atomic<void *> function_{nullptr};
};

}  // namespace softhca

// REAL(int, close, int) declares real_close.
#define REAL(R, name, ...) \
  static constinit ::softhca::Real<R(__VA_ARGS__)> real_##name { #name }

// INTERPOSE(int, close, int fd) { ... } defines the exported `close`. In C++ it
// has another name: the declarations of the C library's headers have attributes
// (nonnull and others) that callers of ours need not respect.
#define INTERPOSE(R, name, ...)                                                              \
  extern "C" [[gnu::visibility("default")]] R interposed_##name(__VA_ARGS__) __asm__(#name); \
  R interposed_##name(__VA_ARGS__)
