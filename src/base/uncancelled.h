// A thread that is cancelled while it exists goes on to its next cancellation point after that.
//
// Unwinding it through this library would end the process: the library has a C++ runtime of its
// own, which the C library's unwinder cannot call. libibverbs and the functions of the C library
// that verbs wait in otherwise are cancellation points.
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
  int before_;  // pthread_setcancelstate() sets it
};

}  // namespace ibvexp
