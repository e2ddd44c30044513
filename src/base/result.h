// Value or errno: what functions inside the library return. The boundary turns
// it into the error shape of the entry point.
#pragma once

#include <type_traits>

namespace ibvexp {

// A positive errno value on its way out.
struct Error {
  int code;
};

template <class T>
class [[nodiscard]] Result {
  static_assert(std::is_trivially_copyable_v<T>, "passed in registers");

 public:
  Result(T value) : value_(value) {}
  Result(Error error) : error_(error.code) {}

  explicit operator bool() const { return error_ == 0; }
  T value() const { return value_; }
  int error() const { return error_; }
  Error failure() const { return {error_}; }

 private:
  T value_{};
  int error_ = 0;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(error.code) {}

  explicit operator bool() const { return error_ == 0; }
  int error() const { return error_; }
  Error failure() const { return {error_}; }

 private:
  int error_ = 0;
};

}  // namespace ibvexp
