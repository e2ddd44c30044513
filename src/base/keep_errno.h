// errno around calls of rdma-core that leave their reason there.
#pragma once

#include <cerrno>

#include "base/result.h"

namespace ibvexp {

// errno of a call that succeeds is not ours to change.
struct KeepErrno {
  const int kept = errno;
  KeepErrno() { errno = 0; }
  ~KeepErrno() { errno = kept; }
  KeepErrno(const KeepErrno &) = delete;
  KeepErrno &operator=(const KeepErrno &) = delete;

  // rdma-core's reason for a failure since; a few calls give none.
  Error reason(int otherwise = EINVAL) const { return {errno != 0 ? errno : otherwise}; }

  // What a creation of rdma-core returned, as ours.
  template <class T>
  Result<T *> made(T *object) const {
    if (object == nullptr) return reason();
    return object;
  }
};

// Some calls return negative errno values.
inline int positive(int error) { return error < 0 ? -error : error; }

// What a call of rdma-core returned, as ours: 0, or an errno value of either sign.
inline Result<void> outcome(int error) {
  if (error == 0) return {};
  return Error{positive(error)};
}

}  // namespace ibvexp
