// A member of a caller's structure that names an object: the one behind it for the
// time of a call. In place, since older programs have shorter structures.
#pragma once

#include "translate/queue/front.h"

namespace ibvexp::queue {

template <class Object>
class Unwrapped {
 public:
  explicit Unwrapped(Object *&member) noexcept : member_(member), shown_(member) {
    if (Object *const back = behind(shown_); back != shown_) member_ = back;
  }
  ~Unwrapped() {
    if (member_ != shown_) member_ = shown_;
  }
  Unwrapped(const Unwrapped &) = delete;
  Unwrapped &operator=(const Unwrapped &) = delete;

 private:
  Object *&member_;
  Object *const shown_;
};

}  // namespace ibvexp::queue
