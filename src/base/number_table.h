// Objects by their 24-bit number, as libmlx5 keeps its own: two levels of 4096.
// Look-up takes no lock and follows two pointers; it may run while another
// thread inserts or removes.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

namespace ibvexp {

template <class T>
class NumberTable {
 public:
  NumberTable() = default;
  NumberTable(const NumberTable &) = delete;
  NumberTable &operator=(const NumberTable &) = delete;

  ~NumberTable() {
    for (auto &leaf : leaves_) delete leaf.load(std::memory_order_relaxed);
  }

  T *find(std::uint32_t number) const noexcept {
    const Leaf *leaf = leaves_[top(number)].load(std::memory_order_acquire);
    return leaf != nullptr ? (*leaf)[number & low_mask].load(std::memory_order_acquire) : nullptr;
  }

  // Calls that change the table are serialised by the owner. Throws bad_alloc.
  void set(std::uint32_t number, T *object) {
    auto &slot = leaves_[top(number)];
    Leaf *leaf = slot.load(std::memory_order_relaxed);
    if (leaf == nullptr) {
      if (object == nullptr) return;
      leaf = new Leaf{};
      slot.store(leaf, std::memory_order_release);
    }
    (*leaf)[number & low_mask].store(object, std::memory_order_release);
  }

 private:
  static constexpr unsigned low_bits = 12;
  static constexpr std::uint32_t low_mask = (1u << low_bits) - 1;

  using Leaf = std::array<std::atomic<T *>, 1u << low_bits>;

  static std::size_t top(std::uint32_t number) { return number >> low_bits & low_mask; }

  std::array<std::atomic<Leaf *>, 1u << low_bits> leaves_{};
};

}  // namespace ibvexp
