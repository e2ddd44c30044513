// Equal things get the same number, from 0 on. An open-addressed index over a
// plain array: an audit looks up millions of things, and most of what
// std::unordered_map costs is reaching its nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ibvexp::audit {

template <class T, class Hash>
class Interner {
 public:
  std::uint32_t number(const T &item) {
    if (2 * (items_.size() + 1) > index_.size()) grow();
    const std::size_t hash = Hash()(item);
    for (std::size_t at = hash & mask();; at = (at + 1) & mask()) {
      Slot &slot = index_[at];
      if (slot.number == empty) {
        slot = {static_cast<std::uint32_t>(items_.size()), tag(hash)};
        items_.push_back(item);
        return slot.number;
      }
      if (slot.tag == tag(hash) && items_[slot.number] == item) return slot.number;
    }
  }

  const T &operator[](std::uint32_t number) const { return items_[number]; }
  std::size_t size() const { return items_.size(); }

 private:
  static constexpr std::uint32_t empty = 0xffffffff;
  struct Slot {
    std::uint32_t number = empty;
    std::uint32_t tag = 0;  // the upper half of the hash; the lower one is the place
  };

  static std::uint32_t tag(std::size_t hash) { return static_cast<std::uint32_t>(hash >> 32); }
  std::size_t mask() const { return index_.size() - 1; }

  void grow() {
    std::vector<Slot> larger(index_.empty() ? 1024 : 2 * index_.size());
    index_.swap(larger);
    for (std::uint32_t n = 0; n < items_.size(); ++n) {
      const std::size_t hash = Hash()(items_[n]);
      std::size_t at = hash & mask();
      while (index_[at].number != empty) at = (at + 1) & mask();
      index_[at] = {n, tag(hash)};
    }
  }

  std::vector<T> items_;
  std::vector<Slot> index_;
};

}  // namespace ibvexp::audit
