#include "base/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>

namespace ibvexp {

namespace {

// The owner of a link cannot change: in such a folder only the owner of a file removes it.
bool is_planted(const char *path) {
  struct stat link, parent;
  if (lstat(path, &link) != 0 || !S_ISLNK(link.st_mode) || link.st_uid == geteuid()) return false;
  char folder[PATH_MAX];
  const char *slash = std::strrchr(path, '/');
  const int length = slash != nullptr ? static_cast<int>(slash - path) + 1 : 0;
  std::snprintf(folder, sizeof(folder), "%.*s.", length, path);
  if (stat(folder, &parent) != 0) return true;
  constexpr mode_t everybodys = S_ISVTX | S_IWOTH;
  return (parent.st_mode & everybodys) == everybodys && link.st_uid != parent.st_uid;
}

}  // namespace

int open_output(const char *path, int flags) noexcept {
  constexpr mode_t mode = 0644;
  flags |= O_CLOEXEC;
  const int fd = open(path, flags | O_NOFOLLOW, mode);
  if (fd >= 0 || errno != ELOOP) return fd;
  if (is_planted(path)) {
    errno = EACCES;
    return -1;
  }
  return open(path, flags, mode);
}

}  // namespace ibvexp
