// What threads tell each other without more than the value itself.
#pragma once

#if defined(__SANITIZE_THREAD__)
#define IBVEXP_THREAD_SANITIZER
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define IBVEXP_THREAD_SANITIZER
#endif
#endif

namespace ibvexp {

// A load that an instruction may take as its operand, which compilers do not do with atomic ones.
template <class T>
[[gnu::always_inline]] inline T operand(const T &value) noexcept {
#if defined(IBVEXP_THREAD_SANITIZER)
  return __atomic_load_n(&value, __ATOMIC_RELAXED);
#else
  return value;
#endif
}

// Set and read in any thread.
class Flag {
 public:
  explicit constexpr Flag(bool is) : is_(is) {}
  Flag(const Flag &) = delete;
  Flag &operator=(const Flag &) = delete;
  Flag &operator=(bool is) noexcept {
    __atomic_store_n(&is_, is, __ATOMIC_RELAXED);
    return *this;
  }
  operator bool() const noexcept { return operand(is_); }

 private:
  bool is_;
};

}  // namespace ibvexp
