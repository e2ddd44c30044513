// Objects of rdma-core that go with their owner: whatever fails on the way to an
// object's place destroys it.
#pragma once

#include <memory>

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

}  // namespace ibvexp
