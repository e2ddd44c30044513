#include "base/pointer_set.h"

namespace ibvexp {

PointerSet::~PointerSet() { delete newest_.load(); }

void PointerSet::insert(const void *object) {
  for (;;) {
    Table *const newest = newest_.load(std::memory_order_acquire);
    if (newest != nullptr) {
      Slot *at = newest->at(word(object));
      for (Slot *const end = at + reach; at != end; ++at) {
        std::uintptr_t now = at->load(std::memory_order_relaxed);
        if (is_free(now) && at->compare_exchange_strong(now, word(object))) return;
      }
    }
    const unsigned log = newest != nullptr ? 64 - newest->shift + 2 : first_log;
    auto larger = std::make_unique<Table>(log);
    larger->older.reset(newest);
    Table *expected = newest;
    if (newest_.compare_exchange_strong(expected, larger.get())) larger.release();
    else larger->older.release();  // another thread was faster
  }
}

}  // namespace ibvexp
