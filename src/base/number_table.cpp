#include "base/number_table.h"

#include <memory>

namespace ibvexp {

constinit AnyNumberTable::Leaf AnyNumberTable::no_leaf;
constinit AnyNumberTable::Middle AnyNumberTable::no_middle;

// Numbers are given out from the low ones on: the last leaf is found soon.
AnyNumberTable::~AnyNumberTable() {
  for (std::size_t i = 0; leaves_ != 0; ++i) {
    Middle *const middle = root_.at(i);
    if (middle == &no_middle) continue;
    for (std::size_t j = 0; j < 256; ++j) {
      Leaf *const leaf = middle->at(j);
      if (leaf == &no_leaf) continue;
      delete leaf;
      --leaves_;
    }
    delete middle;
  }
}

std::atomic<void *> &AnyNumberTable::add(std::uint32_t number) {
  const std::size_t high = number >> 16 & 0xff, low = number >> 8 & 0xff;
  Middle *middle = root_.at(high);
  if (middle == &no_middle) {
    // With a leaf from the start.
    auto fresh = std::make_unique<Middle>();
    fresh->put(low, new Leaf);
    ++leaves_;
    middle = fresh.release();
    root_.put(high, middle);
  }
  Leaf *leaf = middle->at(low);
  if (leaf == &no_leaf) {
    leaf = new Leaf;
    ++leaves_;
    middle->put(low, leaf);
  }
  return leaf->children[number & 0xff];
}

}  // namespace ibvexp
