// Which paths are the device's, and where they really are.
#pragma once

#include <climits>
#include <cstring>

#include "base/types.h"
#include "engine/engine.h"

namespace softhca {

inline constexpr char sysfs_prefix[] = "/sys/class/infiniband";   // also infiniband_verbs, ...
inline constexpr char dev_prefix[] = "/dev/infiniband";

// Fast refusal of all other paths. The device's own accesses pass.
inline bool is_device_path(const char *path) {
  if (!path || path[0] != '/') [[likely]] return false;
  return (!std::strncmp(path, sysfs_prefix, sizeof sysfs_prefix - 1) ||
          !std::strncmp(path, dev_prefix, sizeof dev_prefix - 1)) &&
         !inside_device();
}

// Number of the device for "/dev/infiniband/uverbs<n>", -1 for other paths and
// numbers that are not configured.
int device_node(const char *path);

// The file behind a device path. get() is nullptr, with errno, if there is none.
class Redirected {
 public:
  explicit Redirected(const char *path);
  const char *get() const { return ok_ ? buffer_ : nullptr; }

 private:
  bool ok_ = false;
  char buffer_[PATH_MAX];
};

// call(path) with the path to use; `failed` and errno if there is none.
template <class R, class Call>
[[gnu::noinline]] R with_redirected(const char *path, R failed, Call call) {
  const Redirected redirected(path);
  return redirected.get() ? call(redirected.get()) : failed;
}

template <class R, class Call>
R with_path(const char *path, R failed, Call call) {
  if (!is_device_path(path)) [[likely]] return call(path);
  return with_redirected(path, failed, call);
}

}  // namespace softhca
