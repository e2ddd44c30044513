// Questions about files: status, access, links; and where the program stands.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "cm/cm_file.h"
#include "preload/paths.h"
#include "preload/real.h"
#include "umad/umad.h"
#include "uverbs/file.h"
#include "uverbs/state.h"

using namespace softhca;

#if __GLIBC_PREREQ(2, 33)
REAL(int, stat, const char *, struct stat *);
REAL(int, stat64, const char *, struct stat64 *);
REAL(int, lstat, const char *, struct stat *);
REAL(int, lstat64, const char *, struct stat64 *);
REAL(int, fstat, int, struct stat *);
REAL(int, fstat64, int, struct stat64 *);
REAL(int, fstatat, int, const char *, struct stat *, int);
REAL(int, fstatat64, int, const char *, struct stat64 *, int);
#else
// There glibc has them with the version of the structure alone. Who calls them all
// the same is a static libstdc++ of a later one.
#define real_stat(path, st) real___xstat(1, path, st)
#define real_stat64(path, st) real___xstat64(1, path, st)
#define real_lstat(path, st) real___lxstat(1, path, st)
#define real_lstat64(path, st) real___lxstat64(1, path, st)
#define real_fstat(fd, st) real___fxstat(1, fd, st)
#define real_fstat64(fd, st) real___fxstat64(1, fd, st)
#define real_fstatat(dir, path, st, flags) real___fxstatat(1, dir, path, st, flags)
#define real_fstatat64(dir, path, st, flags) real___fxstatat64(1, dir, path, st, flags)
#endif
REAL(int, __xstat, int, const char *, struct stat *);
REAL(int, __xstat64, int, const char *, struct stat64 *);
REAL(int, __lxstat, int, const char *, struct stat *);
REAL(int, __lxstat64, int, const char *, struct stat64 *);
REAL(int, __fxstat, int, int, struct stat *);
REAL(int, __fxstat64, int, int, struct stat64 *);
REAL(int, __fxstatat, int, int, const char *, struct stat *, int);
REAL(int, __fxstatat64, int, int, const char *, struct stat64 *, int);
REAL(int, statx, int, const char *, int, unsigned, struct statx *);
REAL(int, access, const char *, int);
REAL(int, eaccess, const char *, int);
REAL(int, euidaccess, const char *, int);
REAL(int, faccessat, int, const char *, int, int);
REAL(int, chdir, const char *);
REAL(ssize_t, readlink, const char *, char *, size_t);
REAL(ssize_t, __readlink_chk, const char *, char *, size_t, size_t);
REAL(ssize_t, readlinkat, int, const char *, char *, size_t);
REAL(ssize_t, __readlinkat_chk, int, const char *, char *, size_t, size_t);
REAL(char *, realpath, const char *, char *);
REAL(char *, __realpath_chk, const char *, char *, size_t);
REAL(char *, canonicalize_file_name, const char *);
REAL(ssize_t, getxattr, const char *, const char *, void *, size_t);
REAL(ssize_t, lgetxattr, const char *, const char *, void *, size_t);
REAL(ssize_t, listxattr, const char *, char *, size_t);
REAL(ssize_t, llistxattr, const char *, char *, size_t);

namespace {

constexpr mode_t node_mode = S_IFCHR | 0666;

// Turns the placeholder, memory file or socket into the character device it
// stands for.
template <class Stat>
int as_device(int result, Stat *st, dev_t number) {
  if (result != 0) return result;
  st->st_mode = node_mode;
  st->st_rdev = number;
  st->st_size = 0;
  st->st_blocks = 0;
  return 0;
}

int as_device(int result, struct statx *st, dev_t number) {
  if (result != 0) return result;
  st->stx_mode = static_cast<u16>(node_mode);
  st->stx_rdev_major = major(number);
  st->stx_rdev_minor = minor(number);
  st->stx_size = 0;
  st->stx_blocks = 0;
  return 0;
}

template <class Stat, class Call>
int stat_path(const char *path, Stat *st, Call call) {
  if (!is_device_path(path)) [[likely]]
    return call(path);
  const int node = device_node(path);
  const int result = with_redirected(path, -1, call);
  if (is_cm_node(path)) return as_device(result, st, cm_device_number());
  if (const int umad = umad_node(path); umad >= 0)
    return as_device(result, st, umad_device_number(static_cast<u32>(umad)));
  return node >= 0 ? as_device(result, st, uverbs_device_number(static_cast<u32>(node))) : result;
}

template <class Stat>
int stat_descriptor(int fd, Stat *st, int result) {
  const File *f = uverbs_file(fd);
  const bool is_cm = cm::channel_of(fd) != nullptr;
  const u32 umad = umad_node_of(fd);
  if ((!f && !is_cm && umad == 0) || inside_device()) [[likely]]
    return result;
  if (umad != 0) return as_device(result, st, umad_device_number(umad - 1));
  return as_device(result, st, is_cm ? cm_device_number() : uverbs_device_number(f->device_number));
}

// For the *at functions: an empty path stands for the descriptor itself.
template <class Stat, class Call>
int stat_at(int dir, const char *path, Stat *st, int flags, Call call) {
  if ((flags & AT_EMPTY_PATH) && (!path || !*path)) return stat_descriptor(dir, st, call(path));
  return stat_path(path, st, call);
}

// A device node is no link and has no other name.
char *canonical_node(const char *path, char *resolved) {
  if (!resolved) return strdup(path);
  return std::strcpy(resolved, path);
}

}  // namespace

#define STAT(name, type)                                                           \
  INTERPOSE(int, name, const char *path, type *st) {                               \
    return stat_path(path, st, [&](const char *p) { return real_##name(p, st); }); \
  }
STAT(stat, struct stat)
STAT(stat64, struct stat64)
STAT(lstat, struct stat)
STAT(lstat64, struct stat64)

#define FSTAT(name, type) \
  INTERPOSE(int, name, int fd, type *st) { return stat_descriptor(fd, st, real_##name(fd, st)); }
FSTAT(fstat, struct stat)
FSTAT(fstat64, struct stat64)

#define FSTATAT(name, type)                                                        \
  INTERPOSE(int, name, int dir, const char *path, type *st, int flags) {           \
    return stat_at(dir, path, st, flags,                                           \
                   [&](const char *p) { return real_##name(dir, p, st, flags); }); \
  }
FSTATAT(fstatat, struct stat)
FSTATAT(fstatat64, struct stat64)

// The same under the names that programs built before glibc 2.33 use.
#define XSTAT(name, type)                                                                   \
  INTERPOSE(int, name, int version, const char *path, type *st) {                           \
    return stat_path(path, st, [&](const char *p) { return real_##name(version, p, st); }); \
  }
XSTAT(__xstat, struct stat)
XSTAT(__xstat64, struct stat64)
XSTAT(__lxstat, struct stat)
XSTAT(__lxstat64, struct stat64)

#define FXSTAT(name, type)                                        \
  INTERPOSE(int, name, int version, int fd, type *st) {           \
    return stat_descriptor(fd, st, real_##name(version, fd, st)); \
  }
FXSTAT(__fxstat, struct stat)
FXSTAT(__fxstat64, struct stat64)

#define FXSTATAT(name, type)                                                                \
  INTERPOSE(int, name, int version, int dir, const char *path, type *st, int flags) {       \
    return stat_at(dir, path, st, flags,                                                    \
                   [&](const char *p) { return real_##name(version, dir, p, st, flags); }); \
  }
FXSTATAT(__fxstatat, struct stat)
FXSTATAT(__fxstatat64, struct stat64)

INTERPOSE(int, statx, int dir, const char *path, int flags, unsigned mask, struct statx *st) {
  return stat_at(dir, path, st, flags,
                 [&](const char *p) { return real_statx(dir, p, flags, mask, st); });
}

// A node is readable and writable for all users, as rdma-core's udev rules make it; the file
// in its place is not writable.
template <class Call>
int access_path(const char *path, int mode, Call call) {
  if (!is_device_path(path)) [[likely]]
    return call(path);
  if (device_node(path) < 0 && umad_node(path) < 0 && !is_cm_node(path))
    return with_redirected(path, -1, call);
  if ((mode & ~(R_OK | W_OK | X_OK)) == 0 && (mode & X_OK) == 0) return 0;
  errno = (mode & ~(R_OK | W_OK | X_OK)) != 0 ? EINVAL : EACCES;
  return -1;
}

#define ACCESS(name)                                                                     \
  INTERPOSE(int, name, const char *path, int mode) {                                     \
    return access_path(path, mode, [&](const char *p) { return real_##name(p, mode); }); \
  }
ACCESS(access)
ACCESS(eaccess)
ACCESS(euidaccess)

INTERPOSE(int, faccessat, int dir, const char *path, int mode, int flags) {
  return access_path(path, mode,
                     [&](const char *p) { return real_faccessat(dir, p, mode, flags); });
}

INTERPOSE(int, chdir, const char *path) {
  return with_path(path, -1, [](const char *p) { return real_chdir(p); });
}

INTERPOSE(ssize_t, readlink, const char *path, char *to, size_t size) {
  return with_path(path, ssize_t{-1}, [&](const char *p) { return real_readlink(p, to, size); });
}

INTERPOSE(ssize_t, __readlink_chk, const char *path, char *to, size_t size, size_t room) {
  return with_path(path, ssize_t{-1},
                   [&](const char *p) { return real___readlink_chk(p, to, size, room); });
}

INTERPOSE(ssize_t, readlinkat, int dir, const char *path, char *to, size_t size) {
  return with_path(path, ssize_t{-1},
                   [&](const char *p) { return real_readlinkat(dir, p, to, size); });
}

INTERPOSE(ssize_t, __readlinkat_chk, int dir, const char *path, char *to, size_t size,
          size_t room) {
  return with_path(path, ssize_t{-1},
                   [&](const char *p) { return real___readlinkat_chk(dir, p, to, size, room); });
}

// The answer names the path below /sys, as programs that look for a bus address
// in it expect.
template <class Call>
char *canonical(const char *path, char *resolved, Call call) {
  if (!is_device_path(path)) [[likely]]
    return call(path);
  if (device_node(path) >= 0 || umad_node(path) >= 0 || is_cm_node(path))
    return canonical_node(path, resolved);
  char *result = with_redirected(path, static_cast<char *>(nullptr), call);
  if (result) restore_path(result);
  return result;
}

INTERPOSE(char *, realpath, const char *path, char *resolved) {
  return canonical(path, resolved, [&](const char *p) { return real_realpath(p, resolved); });
}

// `room` is at least PATH_MAX, or the call ends the program.
INTERPOSE(char *, __realpath_chk, const char *path, char *resolved, size_t room) {
  return canonical(path, resolved,
                   [&](const char *p) { return real___realpath_chk(p, resolved, room); });
}

INTERPOSE(char *, canonicalize_file_name, const char *path) {
  return canonical(path, nullptr, [](const char *p) { return real_canonicalize_file_name(p); });
}

// Nothing here has extended attributes, but `ls -l` asks.
#define GETXATTR(name)                                                                       \
  INTERPOSE(ssize_t, name, const char *path, const char *attribute, void *to, size_t size) { \
    return with_path(path, ssize_t{-1},                                                      \
                     [&](const char *p) { return real_##name(p, attribute, to, size); });    \
  }
GETXATTR(getxattr)
GETXATTR(lgetxattr)

#define LISTXATTR(name)                                                                           \
  INTERPOSE(ssize_t, name, const char *path, char *to, size_t size) {                             \
    return with_path(path, ssize_t{-1}, [&](const char *p) { return real_##name(p, to, size); }); \
  }
LISTXATTR(listxattr)
LISTXATTR(llistxattr)
