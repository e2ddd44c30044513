// Objects by their 24-bit number: three levels of 256. Look-up takes no lock and
// follows three pointers; it may run while another thread inserts or removes.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace ibvexp {

// For objects of any type. An empty table takes 2 KB, one with an object 4 KB more.
class AnyNumberTable {
 public:
  AnyNumberTable() = default;
  AnyNumberTable(const AnyNumberTable &) = delete;
  AnyNumberTable &operator=(const AnyNumberTable &) = delete;
  ~AnyNumberTable();

  void *find(std::uint32_t number) const noexcept {
    const Middle *middle = root_.at(number >> 16 & 0xff);
    const Leaf *leaf = middle->at(number >> 8 & 0xff);
    return leaf->at(number & 0xff);
  }

  // The place of the number's object; null: none was made yet.
  std::atomic<void *> *place(std::uint32_t number) noexcept {
    Leaf *const leaf = root_.at(number >> 16 & 0xff)->at(number >> 8 & 0xff);
    return leaf != &no_leaf ? &leaf->children[number & 0xff] : nullptr;
  }

  // The same, made where there is none. Calls that change the table are serialised by the owner.
  // Throws bad_alloc.
  std::atomic<void *> &need_place(std::uint32_t number) {
    std::atomic<void *> *const at = place(number);
    return at != nullptr ? *at : add(number);
  }
  void set(std::uint32_t number, void *object) {
    if (std::atomic<void *> *const at = object != nullptr ? &need_place(number) : place(number))
      at->store(object, std::memory_order_release);
  }

 private:
  std::atomic<void *> &add(std::uint32_t number);

  // Absent children point to one empty node, so that find() tests no pointer.
  template <class T, T *nothing>
  struct Node {
    constexpr Node() : Node(std::make_index_sequence<256>()) {}
    T *at(std::size_t index) const noexcept {
      return children[index].load(std::memory_order_acquire);
    }
    void put(std::size_t index, T *child) noexcept {
      children[index].store(child, std::memory_order_release);
    }

    std::array<std::atomic<T *>, 256> children;

   private:
    template <std::size_t... index>
    constexpr explicit Node(std::index_sequence<index...>)
        : children{((void)index, std::atomic<T *>(nothing))...} {}
  };
  using Leaf = Node<void, nullptr>;
  static Leaf no_leaf;
  using Middle = Node<Leaf, &no_leaf>;
  static Middle no_middle;
  using Root = Node<Middle, &no_middle>;

  Root root_;
  std::uint32_t leaves_ = 0;
};

template <class T>
class NumberTable {
 public:
  // A place of the table, valid for the table's lifetime.
  class Place {
   public:
    Place() = default;
    explicit Place(std::atomic<void *> &at) : at_(&at) {}
    explicit operator bool() const { return at_ != nullptr; }
    T *get() const { return static_cast<T *>(at_->load(std::memory_order_acquire)); }
    void set(T *object) const { at_->store(object, std::memory_order_release); }

   private:
    std::atomic<void *> *at_ = nullptr;
  };

  T *find(std::uint32_t number) const noexcept { return static_cast<T *>(table_.find(number)); }
  Place need_place(std::uint32_t number) { return Place(table_.need_place(number)); }
  void set(std::uint32_t number, T *object) { table_.set(number, object); }

 private:
  AnyNumberTable table_;
};

}  // namespace ibvexp
