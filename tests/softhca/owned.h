// Objects of libibverbs that are destroyed at the end of their scope, without an error.
#pragma once

#include <memory>

#include "catch.h"

template <class T, int (*destroy)(T *)>
struct Destroy {
  void operator()(T *object) const { CHECK(destroy(object) == 0); }
};
template <class T, int (*destroy)(T *)>
using Owned = std::unique_ptr<T, Destroy<T, destroy>>;
