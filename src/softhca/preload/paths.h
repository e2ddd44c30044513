// Which paths are the device's, and where they really are.
#pragma once

#include <climits>
#include <cstring>

#include "base/types.h"
#include "engine/engine.h"

namespace softhca {

struct PathPrefix {
  const char *text;
  size_t length;
  bool whole_name;  // nothing but '/' or the end may follow
};
inline constexpr PathPrefix device_prefixes[] = {
    {"/sys/class/infiniband", 21, false},  // also infiniband_verbs, infiniband_mad, ...
    {"/sys/class/misc/rdma_cm", 23, true},
    {"/sys/devices/pci5348:", 21, false},  // where its links lead, see sysfs_tree.cpp
    {"/dev/infiniband", 15, true},
};

// Fast refusal of all other paths. The device's own accesses pass.
inline bool is_device_path(const char *path) {
  if (!path || path[0] != '/') return false;
  for (const PathPrefix &p : device_prefixes)
    if (!std::strncmp(path, p.text, p.length)) [[unlikely]]
      return (!p.whole_name || path[p.length] == '/' || path[p.length] == '\0') && !inside_device();
  return false;
}

// Number of the device for "/dev/infiniband/uverbs<n>", -1 for other paths and
// numbers that are not configured.
int device_node(const char *path);
// The same for "/dev/infiniband/umad<n>".
int umad_node(const char *path);
// Whether it is the node of the connection manager.
bool is_cm_node(const char *path);

// The file behind a device path. get() is nullptr, with errno, if there is none.
class Redirected {
 public:
  explicit Redirected(const char *path);
  const char *get() const { return ok_ ? buffer_ : nullptr; }

 private:
  bool ok_ = false;
  char buffer_[PATH_MAX];
};

// The opposite for results: a path in the tree becomes the one below /sys.
void restore_path(char *path);

// call(path) with the path to use; `failed` and errno if there is none.
template <class R, class Call>
[[gnu::noinline]] R with_redirected(const char *path, R failed, Call call) {
  const Redirected redirected(path);
  return redirected.get() ? call(redirected.get()) : failed;
}

template <class R, class Call>
R with_path(const char *path, R failed, Call call) {
  if (!is_device_path(path)) [[likely]]
    return call(path);
  return with_redirected(path, failed, call);
}

}  // namespace softhca
