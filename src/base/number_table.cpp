#include "base/number_table.h"

namespace ibvexp {

constinit AnyNumberTable::Leaf AnyNumberTable::no_leaf;
constinit AnyNumberTable::Middle AnyNumberTable::no_middle;

AnyNumberTable::~AnyNumberTable() {
  for (std::size_t i = 0; i < 256; ++i) {
    Middle *const middle = root_.at(i);
    if (middle == &no_middle) continue;
    for (std::size_t j = 0; j < 256; ++j)
      if (Leaf *const leaf = middle->at(j); leaf != &no_leaf) delete leaf;
    delete middle;
  }
}

void AnyNumberTable::set(std::uint32_t number, void *object) {
  const std::size_t high = number >> 16 & 0xff, low = number >> 8 & 0xff;
  Middle *middle = root_.at(high);
  if (middle == &no_middle) {
    if (object == nullptr) return;
    middle = new Middle;
    root_.put(high, middle);
  }
  Leaf *leaf = middle->at(low);
  if (leaf == &no_leaf) {
    if (object == nullptr) return;
    leaf = new Leaf;
    middle->put(low, leaf);
  }
  leaf->put(number & 0xff, object);
}

}  // namespace ibvexp
