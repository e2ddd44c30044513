// An object that is made at first need, by a thread that holds the owner's lock,
// and used by others that hold none.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace ibvexp {

// As std::shared_ptr, it does not need to know the whole type.
template <class T>
class OncePointer {
 public:
  T *get() const noexcept { return seen_.load(std::memory_order_acquire); }
  T &operator*() const noexcept { return *get(); }
  T *operator->() const noexcept { return get(); }
  bool operator==(std::nullptr_t) const noexcept { return get() == nullptr; }

  // What others see is whole. Never replaced.
  void set(std::shared_ptr<T> object) noexcept {
    owner_ = std::move(object);
    seen_.store(owner_.get(), std::memory_order_release);
  }

 private:
  std::shared_ptr<T> owner_;
  std::atomic<T *> seen_{nullptr};
};

}  // namespace ibvexp
