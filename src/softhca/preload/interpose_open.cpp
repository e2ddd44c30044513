// Opening files and directories.
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <cstdarg>
#include <cstring>

#include "cm/cm_file.h"
#include "preload/calls.h"
#include "preload/counter_file.h"
#include "preload/paths.h"
#include "preload/real.h"
#include "umad/umad.h"
#include "uverbs/file.h"

using namespace softhca;

REAL(int, open, const char *, int, ...);
REAL(int, open64, const char *, int, ...);
REAL(int, openat, int, const char *, int, ...);
REAL(int, openat64, int, const char *, int, ...);
REAL(int, __open_2, const char *, int);
REAL(int, __open64_2, const char *, int);
REAL(int, __openat_2, int, const char *, int);
REAL(int, __openat64_2, int, const char *, int);
REAL(int, close, int);
REAL(FILE *, fopen, const char *, const char *);
REAL(FILE *, fopen64, const char *, const char *);
REAL(DIR *, opendir, const char *);
REAL(int, scandir, const char *, dirent ***, int (*)(const dirent *),
     int (*)(const dirent **, const dirent **));
REAL(int, scandir64, const char *, dirent64 ***, int (*)(const dirent64 *),
     int (*)(const dirent64 **, const dirent64 **));

namespace {

[[gnu::noinline]] int open_device_path(const char *path, int flags) {
  if (const int n = device_node(path); n >= 0) {
    prepare_for_fork();
    device_opened();
    return in_device([&] { return uverbs_open(static_cast<u32>(n), flags); });
  }
  if (const int n = umad_node(path); n >= 0) {
    prepare_for_fork();
    device_opened();
    return in_device([&] { return umad_open(static_cast<u32>(n), flags); });
  }
  if (is_cm_node(path)) {
    prepare_for_fork();
    device_opened();
    return in_device([&] { return cm_open(flags); });
  }
  const Redirected redirected(path);
  if (!redirected.get()) return -1;
  const int fd =
      real_open(redirected.get(), (flags & ~(O_ACCMODE | O_CREAT | O_TRUNC | O_EXCL)) | O_RDONLY);
  if (fd >= 0 && (flags & O_ACCMODE) != O_RDONLY) {
    // The files are shared by all processes, and no attribute can be written.
    real_close(fd);
    errno = EACCES;
    return -1;
  }
  if (const int counter = fd < 0 ? -1 : open_counter(path, (flags & O_CLOEXEC) != 0);
      counter >= 0) {
    real_close(fd);
    return counter;
  }
  return fd;
}

mode_t mode_argument(int flags, va_list args) {
  return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(args, mode_t) : 0;
}

}  // namespace

#define OPEN(name)                                         \
  INTERPOSE(int, name, const char *path, int flags, ...) { \
    if (is_device_path(path)) [[unlikely]]                 \
      return open_device_path(path, flags);                \
    va_list args;                                          \
    va_start(args, flags);                                 \
    const mode_t mode = mode_argument(flags, args);        \
    va_end(args);                                          \
    return real_##name(path, flags, mode);                 \
  }
OPEN(open)
OPEN(open64)

// The directory does not matter: device paths are absolute.
#define OPENAT(name)                                                \
  INTERPOSE(int, name, int dir, const char *path, int flags, ...) { \
    if (is_device_path(path)) [[unlikely]]                          \
      return open_device_path(path, flags);                         \
    va_list args;                                                   \
    va_start(args, flags);                                          \
    const mode_t mode = mode_argument(flags, args);                 \
    va_end(args);                                                   \
    return real_##name(dir, path, flags, mode);                     \
  }
OPENAT(openat)
OPENAT(openat64)

// What fortified programs call when no mode is given.
#define OPEN_2(name)                                                                        \
  INTERPOSE(int, name, const char *path, int flags) {                                       \
    return is_device_path(path) ? open_device_path(path, flags) : real_##name(path, flags); \
  }
OPEN_2(__open_2)
OPEN_2(__open64_2)

#define OPENAT_2(name)                                                                           \
  INTERPOSE(int, name, int dir, const char *path, int flags) {                                   \
    return is_device_path(path) ? open_device_path(path, flags) : real_##name(dir, path, flags); \
  }
OPENAT_2(__openat_2)
OPENAT_2(__openat64_2)

namespace {

FILE *stream_of(int fd, const char *mode) {
  FILE *const stream = fdopen(fd, mode);
  if (stream == nullptr) real_close(fd);
  return stream;
}

}  // namespace

// Character devices are not opened through stdio: only sysfs matters here.
#define FOPEN(name)                                                                               \
  INTERPOSE(FILE *, name, const char *path, const char *mode) {                                   \
    return with_path(path, static_cast<FILE *>(nullptr), [&](const char *p) {                     \
      if (p != path && mode[0] != 'r') {                                                          \
        errno = EACCES;                                                                           \
        return static_cast<FILE *>(nullptr);                                                      \
      }                                                                                           \
      const int counter = p == path ? -1 : open_counter(path, std::strchr(mode, 'e') != nullptr); \
      return counter >= 0 ? stream_of(counter, mode) : real_##name(p, mode);                      \
    });                                                                                           \
  }
FOPEN(fopen)
FOPEN(fopen64)

INTERPOSE(DIR *, opendir, const char *path) {
  return with_path(path, static_cast<DIR *>(nullptr),
                   [](const char *p) { return real_opendir(p); });
}

INTERPOSE(int, scandir, const char *path, dirent ***list, int (*select)(const dirent *),
          int (*compare)(const dirent **, const dirent **)) {
  return with_path(path, -1, [&](const char *p) { return real_scandir(p, list, select, compare); });
}

INTERPOSE(int, scandir64, const char *path, dirent64 ***list, int (*select)(const dirent64 *),
          int (*compare)(const dirent64 **, const dirent64 **)) {
  return with_path(path, -1,
                   [&](const char *p) { return real_scandir64(p, list, select, compare); });
}
