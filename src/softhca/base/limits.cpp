#include "base/limits.h"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>

namespace softhca {

namespace {

sigset_t file_size_signal() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGXFSZ);
  return set;
}

bool print(LimitText &out, __rlimit_resource resource, const char *name, const char *unit) {
  rlimit limit;
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return false;
  std::snprintf(out.text, sizeof out.text, " (%s is %llu%s)", name,
                static_cast<unsigned long long>(limit.rlim_cur), unit);
  return true;
}

}  // namespace

LimitText limit_behind(int error) {
  const int saved = errno;
  LimitText out{};
  switch (error) {
    case EFBIG: print(out, RLIMIT_FSIZE, "RLIMIT_FSIZE", " bytes"); break;
    case EMFILE: print(out, RLIMIT_NOFILE, "RLIMIT_NOFILE", " descriptors"); break;
    case ENOMEM:
      if (!print(out, RLIMIT_AS, "RLIMIT_AS", " bytes"))
        print(out, RLIMIT_DATA, "RLIMIT_DATA", " bytes");
      break;
    case EAGAIN: print(out, RLIMIT_NPROC, "RLIMIT_NPROC", " threads of the user"); break;
    default: break;
  }
  errno = saved;
  return out;
}

LimitText limit_behind(int error, const char *file) {
  constexpr const char *shared = "/dev/shm";
  const int saved = errno;
  LimitText out = limit_behind(error);
  struct statvfs room;
  if (error == ENOSPC && std::strncmp(file, shared, std::strlen(shared)) == 0 &&
      statvfs(shared, &room) == 0)
    std::snprintf(out.text, sizeof out.text, " (%s has %llu KiB; of a container: --shm-size=64m)",
                  shared, static_cast<unsigned long long>(room.f_blocks) * room.f_frsize / 1024);
  errno = saved;
  return out;
}

FileSizeErrors::FileSizeErrors() {
  const sigset_t set = file_size_signal();
  sigset_t waiting;
  pending_ = sigpending(&waiting) == 0 && sigismember(&waiting, SIGXFSZ) == 1;
  pthread_sigmask(SIG_BLOCK, &set, &before_);
}

FileSizeErrors::~FileSizeErrors() {
  const int saved = errno;
  const sigset_t set = file_size_signal();
  const timespec now{0, 0};
  // The kernel sends it to the thread that wrote, here blocked.
  if (!pending_)
    while (sigtimedwait(&set, nullptr, &now) == SIGXFSZ) {
    }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  errno = saved;
}

int write_all(int fd, const void *data, size_t bytes, u64 offset) {
  const FileSizeErrors errors;
  const auto *from = static_cast<const u8 *>(data);
  while (bytes != 0) {
    const ssize_t n = pwrite(fd, from, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : ENOSPC;
    from += n;
    offset += static_cast<u64>(n);
    bytes -= static_cast<size_t>(n);
  }
  return 0;
}

}  // namespace softhca
