// Turns thread cancellation off for its lifetime: a thread that is cancelled meanwhile ends at its
// next cancellation point afterwards. Verbs call functions that are cancellation points.
//
// Unwinding a thread through this library would end the process: the library has its own C++
// runtime, which the C library's unwinder cannot call.
#pragma once

#include <pthread.h>

namespace ibvexp {

class Uncancelled {
 public:
  Uncancelled() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  Uncancelled(const Uncancelled &) = delete;
  Uncancelled &operator=(const Uncancelled &) = delete;
  ~Uncancelled() { pthread_setcancelstate(before_, nullptr); }

 private:
  int before_;  // set by pthread_setcancelstate()
};

}  // namespace ibvexp
