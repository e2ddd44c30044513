#include "preload/paths.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "preload/sysfs_tree.h"
#include "uverbs/file.h"

namespace softhca {

int device_node(const char *path) {
  constexpr char node_prefix[] = "/dev/infiniband/uverbs";
  constexpr size_t length = sizeof node_prefix - 1;
  if (std::strncmp(path, node_prefix, length) != 0) return -1;
  const char *digits = path + length;
  const size_t count = std::strspn(digits, "0123456789");
  if (count == 0 || count > 4 || digits[count] != '\0' || (count > 1 && digits[0] == '0'))
    return -1;
  const int n = std::atoi(digits);
  return n < static_cast<int>(uverbs_device_count()) ? n : -1;
}

bool is_cm_node(const char *path) { return std::strcmp(path, "/dev/infiniband/rdma_cm") == 0; }

Redirected::Redirected(const char *path) {
  const int saved = errno;
  const char *root = sysfs_root();
  if (!root) return;
  errno = saved;
  const bool sysfs = path[1] == 's';
  const int n = std::snprintf(buffer_, sizeof buffer_, "%s%s", root,
                              path + (sysfs ? std::strlen("/sys") : 0));
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
