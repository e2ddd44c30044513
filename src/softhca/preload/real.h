// The functions that we stand in front of, and the form of our own.
//
// Real functions are looked up at their first use: other libraries may call us
// before our constructors run. A successful look-up neither allocates nor
// takes a lock that an allocator's hook could not stand.
#pragma once

#include <atomic>

namespace softhca {

// The next definition of `name` behind this library. Ends the process when
// there is none: then the program cannot have called it.
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
// has another name: the declarations of the C library's headers promise the
// compiler what a caller of ours need not keep (no null pointers, say).
#define INTERPOSE(R, name, ...)                                                              \
  extern "C" [[gnu::visibility("default")]] R interposed_##name(__VA_ARGS__) __asm__(#name); \
  R interposed_##name(__VA_ARGS__)
