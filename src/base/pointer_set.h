// A set of addresses of objects. Every call may run in any thread and takes no lock;
// the objects are never read.
//
// An address may stand in one of a few places of each table. The newest table is the largest, and
// new addresses go there. No table is freed before the set is, so a reader needs no lock. A place
// that was used stays different from one that never was: a search in a table ends at the first of
// the latter.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace ibvexp {

class PointerSet {
 public:
  PointerSet() = default;
  PointerSet(const PointerSet &) = delete;
  PointerSet &operator=(const PointerSet &) = delete;
  ~PointerSet();

  bool contains(const void *object) const noexcept { return find_inside(object) != nullptr; }

  // object: aligned, and not in the set. Throws bad_alloc.
  void insert(const void *object);

  // The place of an address.
  using Slot = std::atomic<std::uintptr_t>;

  // Claims an address: it is not in the set any more, but its place is kept. Null: it was not in
  // the set. Of two threads, one gets it.
  Slot *claim(const void *object) noexcept {
    Slot *const at = find_inside(object);
    std::uintptr_t now = word(object);
    return at != nullptr && at->compare_exchange_strong(now, now | claimed) ? at : nullptr;
  }
  // The place of a claimed address.
  Slot &claimed_place(const void *object) noexcept { return *find(word(object) | claimed); }
  // Put a claimed address back into the set, or remove it.
  static void put_back(Slot &at) noexcept {
    at.store(at.load(std::memory_order_relaxed) & ~claimed, std::memory_order_release);
  }
  static void remove(Slot &at) noexcept { at.store(free, std::memory_order_release); }

  // Calls f with each address in the set, and with claimed ones if requested.
  template <class F>
  void for_each(bool with_claimed, F f) const {
    for (const Table *table = newest_.load(std::memory_order_acquire); table != nullptr;
         table = table->older.get())
      for (std::size_t i = 0; i < table->places(); ++i) {
        const std::uintptr_t found = table->slots[i].load(std::memory_order_acquire);
        if (!is_free(found) && (with_claimed || (found & claimed) == 0))
          f(reinterpret_cast<void *>(found & ~claimed));
      }
  }

 private:
  static constexpr std::uintptr_t untouched = 0, claimed = 1, free = claimed;
  static constexpr std::size_t reach = 8;  // places of an address in a table
  static constexpr unsigned first_log = 6;

  struct Table {
    explicit Table(unsigned log) : shift(64 - log), slots(std::make_unique<Slot[]>(places())) {}
    std::size_t places() const { return (std::size_t{1} << (64 - shift)) + reach - 1; }
    Slot *at(std::uintptr_t word) const {
      return &slots[(word & ~claimed) * std::uint64_t{0x9e3779b97f4a7c15} >> shift];
    }

    unsigned shift;
    std::unique_ptr<Slot[]> slots;
    std::unique_ptr<Table> older;
  };

  static bool is_free(std::uintptr_t word) { return (word & ~claimed) == 0; }
  static std::uintptr_t word(const void *object) {
    return reinterpret_cast<std::uintptr_t>(object);
  }
  Slot *find_inside(const void *object) const noexcept {
    const bool aligned = object != nullptr && (word(object) & claimed) == 0;
    return aligned ? find(word(object)) : nullptr;
  }
  Slot *find(std::uintptr_t word) const noexcept {
    for (const Table *table = newest_.load(std::memory_order_acquire); table != nullptr;
         table = table->older.get()) {
      Slot *at = table->at(word);
      for (Slot *const end = at + reach; at != end; ++at) {
        const std::uintptr_t found = at->load(std::memory_order_acquire);
        if (found == word) {
          if (at == nullptr) __builtin_unreachable();  // spares callers' tests an instruction
          return at;
        }
        if (found == untouched) break;
      }
    }
    return nullptr;
  }

  std::atomic<Table *> newest_{nullptr};
};

}  // namespace ibvexp
