// Which paths are the device's, and where they really are.
#pragma once

#include <climits>
#include <cstring>

#include "base/types.h"
#include "engine/engine.h"

namespace softhca {

struct PathPrefix {
  enum class Rest : u8 {
    any,
    whole_name,  // nothing but '/' or the end may follow
    listing,     // the directory alone: the tree has links to what else is there
    netdev,      // <interface>/device of an interface that the configuration names
  };
  const char *text;
  size_t length;
  Rest rest;
};
inline constexpr PathPrefix device_prefixes[] = {
    {"/sys/class/infiniband", 21, PathPrefix::Rest::any},  // infiniband_verbs, infiniband_mad, ...
    {"/sys/class/misc/rdma_cm", 23, PathPrefix::Rest::whole_name},
    {"/sys/devices/pci5348:", 21, PathPrefix::Rest::any},  // where its links lead, sysfs_tree.cpp
    {"/sys/bus/pci/devices/5348:", 26, PathPrefix::Rest::any},
    {"/dev/infiniband", 15, PathPrefix::Rest::whole_name},
    {"/sys/class/net/", 15, PathPrefix::Rest::netdev},
    {"/sys/bus/pci/devices", 20, PathPrefix::Rest::listing},
    {"/sys/class", 10, PathPrefix::Rest::listing},
};

// Whether `rest` is <interface>/device, or below it, of one of ours.
bool is_netdev_device(const char *rest);

inline bool fits(const PathPrefix &p, const char *rest) {
  switch (p.rest) {
    case PathPrefix::Rest::any: return true;
    case PathPrefix::Rest::whole_name: return *rest == '/' || *rest == '\0';
    case PathPrefix::Rest::listing: return std::strspn(rest, "/") == std::strlen(rest);
    case PathPrefix::Rest::netdev: return is_netdev_device(rest);
  }
  return false;
}

// Fast refusal of all other paths. The device's own accesses pass.
inline bool is_device_path(const char *path) {
  if (!path || path[0] != '/') return false;
  for (const PathPrefix &p : device_prefixes)
    if (!std::strncmp(path, p.text, p.length)) [[unlikely]]
      if (!inside_device() && fits(p, path + p.length)) return true;
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
