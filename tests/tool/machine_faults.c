/* Situations of a machine, for ibvexp doctor: preloaded in front of the software
   HCA, makes what FAULT names fail.
     unknown  the device does not say what it is: no provider takes it
     nodes    /dev/infiniband may not be opened */
#undef _FILE_OFFSET_BITS /* the names below are those of both widths */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define EXPORT __attribute__((visibility("default")))

/* 0, or the errno value that opening the path shall end with. */
static int fault(const char *path, int flags) {
  const char *which = getenv("FAULT");
  if (which == NULL || path == NULL) return 0;
  /* The software HCA writes it. */
  if (strcmp(which, "unknown") == 0 && (flags & O_ACCMODE) == O_RDONLY &&
      strstr(path, "device/modalias") != NULL)
    return ENOENT;
  if (strcmp(which, "nodes") == 0 && strncmp(path, "/dev/infiniband/uverbs", 22) == 0)
    return EACCES;
  return 0;
}

static void *next(const char *name) { return dlsym(RTLD_NEXT, name); }

/* parameters, arguments: what comes before the path. */
#define OPEN(name, parameters, arguments, types)                 \
  EXPORT int name(parameters const char *path, int flags, ...) { \
    static int (*real)(types const char *, int, ...);            \
    va_list more;                                                \
    mode_t mode;                                                 \
    if ((errno = fault(path, flags)) != 0) return -1;            \
    if (real == NULL) *(void **)&real = next(#name);             \
    va_start(more, flags);                                       \
    mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;    \
    va_end(more);                                                \
    return real(arguments path, flags, mode);                    \
  }
#define NONE
#define FOLDER_PARAMETER int folder,
#define FOLDER folder,
#define FOLDER_TYPE int,
OPEN(open, NONE, NONE, NONE)
OPEN(open64, NONE, NONE, NONE)
OPEN(openat, FOLDER_PARAMETER, FOLDER, FOLDER_TYPE)
OPEN(openat64, FOLDER_PARAMETER, FOLDER, FOLDER_TYPE)

/* Of programs that are built with _FORTIFY_SOURCE. */
#define OPEN_2(name, parameters, arguments, types)          \
  EXPORT int name(parameters const char *path, int flags) { \
    static int (*real)(types const char *, int);            \
    if ((errno = fault(path, flags)) != 0) return -1;       \
    if (real == NULL) *(void **)&real = next(#name);        \
    return real(arguments path, flags);                     \
  }
OPEN_2(__open_2, NONE, NONE, NONE)
OPEN_2(__open64_2, NONE, NONE, NONE)
OPEN_2(__openat_2, FOLDER_PARAMETER, FOLDER, FOLDER_TYPE)
OPEN_2(__openat64_2, FOLDER_PARAMETER, FOLDER, FOLDER_TYPE)

/* Nor by netlink, where a device says who drives it. */
EXPORT int socket(int domain, int type, int protocol) {
  static int (*real)(int, int, int);
  const int netlink_rdma = 20;
  const char *which = getenv("FAULT");
  if (which != NULL && strcmp(which, "unknown") == 0 && domain == AF_NETLINK &&
      protocol == netlink_rdma) {
    errno = EPROTONOSUPPORT;
    return -1;
  }
  if (real == NULL) *(void **)&real = next("socket");
  return real(domain, type, protocol);
}
