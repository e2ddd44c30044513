#include "preload/paths.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "config/config.h"
#include "preload/sysfs_tree.h"
#include "umad/umad.h"
#include "uverbs/file.h"

namespace softhca {

namespace {

// The number behind `prefix`, if it is one of `count`.
int node_number(const char *path, const char *prefix, u32 (*count)()) {
  const size_t length = std::strlen(prefix);
  if (std::strncmp(path, prefix, length) != 0) return -1;
  const char *digits = path + length;
  const size_t n = std::strspn(digits, "0123456789");
  if (n == 0 || n > 4 || digits[n] != '\0' || (n > 1 && digits[0] == '0')) return -1;
  const int number = std::atoi(digits);
  return number < static_cast<int>(count()) ? number : -1;
}

}  // namespace

int device_node(const char *path) {
  return node_number(path, "/dev/infiniband/uverbs", uverbs_device_count);
}

int umad_node(const char *path) { return node_number(path, "/dev/infiniband/umad", umad_count); }

bool is_cm_node(const char *path) { return std::strcmp(path, "/dev/infiniband/rdma_cm") == 0; }

bool is_netdev_device(const char *rest) {
  const char *slash = std::strchr(rest, '/');
  if (slash == nullptr || std::strncmp(slash, "/device", 7) != 0 ||
      (slash[7] != '/' && slash[7] != '\0'))
    return false;
  const std::string_view name(rest, static_cast<size_t>(slash - rest));
  // The configuration is read once, with files of its own.
  InsideDevice inside;
  for (const DeviceConfig &d : config().devices)
    for (const PortConfig &p : d.ports)
      if (!p.netdev.empty() && p.netdev == name) return true;
  return false;
}

Redirected::Redirected(const char *path) {
  const int saved = errno;
  const char *root = sysfs_root();
  if (!root) return;
  errno = saved;
  constexpr std::string_view netdevs = "/sys/class/net/";
  const bool netdev = std::strncmp(path, netdevs.data(), netdevs.size()) == 0;
  const char *rest = netdev           ? path + netdevs.size()
                     : path[1] == 's' ? path + std::strlen("/sys")
                                      : path;
  const int n =
      std::snprintf(buffer_, sizeof buffer_, "%s%s%s", root, netdev ? "/netdev/" : "", rest);
  ok_ = n < static_cast<int>(sizeof buffer_);
  if (!ok_) errno = ENAMETOOLONG;
}

void restore_path(char *path) {
  const char *root = sysfs_root();
  if (!root) return;
  const size_t length = std::strlen(root);
  if (std::strncmp(path, root, length) != 0 || path[length] != '/') return;
  const char *rest = path + length;
  const size_t kept = std::strlen(rest) + 1;
  if (!std::strncmp(rest, "/dev/", 5)) {
    std::memmove(path, rest, kept);
    return;
  }
  // Always shorter: the tree lies in a directory of the fabric.
  std::memmove(path + 4, rest, kept);
  std::memcpy(path, "/sys", 4);
}

}  // namespace softhca
