// Objects of rdma-core that go with their owner: whatever fails on the way to an
// object's place destroys it.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

namespace ibvexp {

template <auto destroy>
struct Destroys {
  template <class T>
  void operator()(T *object) const noexcept {
    static_cast<void>(destroy(object));
  }
};

// destroy may change errno: declare the owner inside the scope that keeps it.
template <class T, auto destroy>
using Owned = std::unique_ptr<T, Destroys<destroy>>;

// Plain values that begin as zeros. Many of them cost nothing until they are used: the system's
// pages are zero already.
template <class T>
using Zeros = std::unique_ptr<T[], Destroys<std::free>>;
template <class T>
Zeros<T> make_zeros(std::size_t count) {
  static_assert(std::is_trivially_default_constructible_v<T> &&
                std::is_trivially_destructible_v<T>);
  auto *const values = static_cast<T *>(std::calloc(count != 0 ? count : 1, sizeof(T)));
  if (values == nullptr) throw std::bad_alloc();
  return Zeros<T>(values);
}

}  // namespace ibvexp
