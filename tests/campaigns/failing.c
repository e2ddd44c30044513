/*
 * Preloaded in front of a program: counts what it asks of the C library, and lets
 * the nth fail.
 *
 *   FAILING_REPORT  file; a line is added at the end of each process: "counted N",
 *                   "fired NAME CALLER", "crash SIGNAL PLACES"
 *   FAILING_KIND    allocation, mapping or file
 *   FAILING_NTH     which one fails; 0: none
 *   FAILING_EVER    1: that one and all behind it
 *   FAILING_OF      names that are part of a library's file name, separated by commas:
 *                   only calls out of these count. "*": calls out of everything but the
 *                   software HCA, which stands for kernel and device, and the loader.
 *
 * Calls are counted in the process and its threads, from the start of main() on.
 */
/* Both names of each function are defined below. */
#undef _FILE_OFFSET_BITS

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#define SHOWN __attribute__((visibility("default")))
#define CALLER __builtin_return_address(0)

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

enum kind { none, allocation, mapping, file };
static enum kind wanted;
static long nth;
static int ever;
static const char *of = "";
static char report[256];
static atomic_long counted, fired;
static const void *fired_at;
static const char *fired_name = "";
static int ready;

/* Executable parts of what is loaded, and whether their calls count. */
struct part {
  uintptr_t begin, end;
  int counts;
};
static struct part parts[256];
static atomic_int part_count;

static int names_match(const char *path) {
  const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
  char list[256], *save = NULL, *at;

  if (strcmp(of, "*") == 0)
    return !strstr(name, "libsofthca") && !strstr(name, "ld-linux") && !strstr(name, "failing");
  snprintf(list, sizeof(list), "%s", of);
  for (at = strtok_r(list, ",", &save); at; at = strtok_r(NULL, ",", &save))
    if (strstr(name, at)) return 1;
  return 0;
}

static int add_parts(struct dl_phdr_info *info, size_t size, void *wanted_at) {
  uintptr_t at = (uintptr_t)wanted_at;
  (void)size;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr) *p = &info->dlpi_phdr[i];
    uintptr_t begin = info->dlpi_addr + p->p_vaddr;
    int place;

    if (p->p_type != PT_LOAD || !(p->p_flags & PF_X)) continue;
    if (at < begin || at >= begin + p->p_memsz) continue;
    place = atomic_load(&part_count);
    if (place == 256) return 1;
    parts[place] = (struct part){begin, begin + p->p_memsz, names_match(info->dlpi_name)};
    atomic_store(&part_count, place + 1);
    return 1;
  }
  return 0;
}

/* Two threads may add the same part: it then stands there twice. */
static int counts(const void *caller) {
  uintptr_t at = (uintptr_t)caller;
  static __thread int inside;

  for (int turn = 0; turn < 2; ++turn) {
    for (int i = 0; i < atomic_load(&part_count); ++i)
      if (at >= parts[i].begin && at < parts[i].end) return parts[i].counts;
    if (inside) return 0;
    inside = 1;
    dl_iterate_phdr(add_parts, (void *)at);
    inside = 0;
  }
  return 0;
}

static int fails(enum kind kind, const char *name, const void *caller) {
  long number;

  if (!ready || kind != wanted || !counts(caller)) return 0;
  number = atomic_fetch_add(&counted, 1) + 1;
  if (nth == 0 || number < nth || (number > nth && !ever)) return 0;
  if (atomic_fetch_add(&fired, 1) == 0) {
    fired_at = caller;
    fired_name = name;
  }
  return 1;
}

/* In functions that a handler of signals may call. */
static void say(const char *text) {
  int fd = (int)open(report, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return;
  if (write(fd, text, strlen(text)) < 0) { /* no place to report it */
  }
  close(fd);
}

static void say_place(char *to, size_t room, const void *address) {
  Dl_info where;
  if (dladdr(address, &where) && where.dli_fname)
    snprintf(to, room, " %s+%#zx(%s)",
             strrchr(where.dli_fname, '/') ? strrchr(where.dli_fname, '/') + 1 : where.dli_fname,
             (size_t)((const char *)address - (const char *)where.dli_fbase),
             where.dli_sname ? where.dli_sname : "");
  else snprintf(to, room, " ?");
}

static void say_fired(void) {
  char line[512] = "", place[384] = "";

  ready = 0;
  if (fired_at) {
    say_place(place, sizeof(place), fired_at);
    snprintf(line, sizeof(line), "fired %s%s\n", fired_name, place);
    say(line);
  }
  snprintf(line, sizeof(line), "counted %ld\n", atomic_load(&counted));
  say(line);
}

static void on_crash(int number) {
  void *frames[24];
  char line[4096], place[384];
  int depth;

  say_fired();
  depth = backtrace(frames, 24);
  snprintf(line, sizeof(line), "crash %d", number);
  for (int i = 2; i < depth; ++i) {
    say_place(place, sizeof(place), frames[i]);
    if (strlen(line) + strlen(place) + 2 < sizeof(line)) strcat(line, place);
  }
  strcat(line, "\n");
  say(line);
  signal(number, SIG_DFL);
  raise(number);
}

__attribute__((constructor)) static void begin(void) {
  const char *kind = getenv("FAILING_KIND"), *to = getenv("FAILING_REPORT");
  const int crashes[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
  void *frames[2];

  if (!kind || !to) return;
  wanted = strcmp(kind, "allocation") == 0 ? allocation
           : strcmp(kind, "mapping") == 0  ? mapping
           : strcmp(kind, "file") == 0     ? file
                                           : none;
  nth = getenv("FAILING_NTH") ? atol(getenv("FAILING_NTH")) : 0;
  ever = getenv("FAILING_EVER") && atoi(getenv("FAILING_EVER"));
  of = getenv("FAILING_OF") ? getenv("FAILING_OF") : "";
  snprintf(report, sizeof(report), "%s", to);
  backtrace(frames, 2); /* loads what it needs */
  for (size_t i = 0; i < sizeof(crashes) / sizeof(crashes[0]); ++i) signal(crashes[i], on_crash);
  ready = 1;
}

__attribute__((destructor)) static void end(void) {
  if (ready) say_fired();
}

/* _exit() runs no destructors. */
SHOWN void _exit(int status) {
  static void (*real)(int) __attribute__((noreturn));
  if (!real) *(void **)&real = dlsym(RTLD_NEXT, "_exit");
  if (ready) say_fired();
  real(status);
}

/* Allocations. */

SHOWN void *malloc(size_t size) {
  if (!fails(allocation, "malloc", CALLER)) return __libc_malloc(size);
  errno = ENOMEM;
  return NULL;
}
SHOWN void *calloc(size_t count, size_t size) {
  if (!fails(allocation, "calloc", CALLER)) return __libc_calloc(count, size);
  errno = ENOMEM;
  return NULL;
}
SHOWN void *realloc(void *block, size_t size) {
  if (!fails(allocation, "realloc", CALLER)) return __libc_realloc(block, size);
  errno = ENOMEM;
  return NULL;
}
SHOWN void *aligned_alloc(size_t alignment, size_t size) {
  if (!fails(allocation, "aligned_alloc", CALLER)) return __libc_memalign(alignment, size);
  errno = ENOMEM;
  return NULL;
}
SHOWN void *memalign(size_t alignment, size_t size) {
  if (!fails(allocation, "memalign", CALLER)) return __libc_memalign(alignment, size);
  errno = ENOMEM;
  return NULL;
}
SHOWN int posix_memalign(void **block, size_t alignment, size_t size) {
  if (fails(allocation, "posix_memalign", CALLER)) return ENOMEM;
  *block = __libc_memalign(alignment, size);
  return *block ? 0 : ENOMEM;
}

/* What follows goes to whoever is behind: the software HCA interposes it as well. */
#define NEXT(type, name)                              \
  static type name##_next;                            \
  if (!name##_next) {                                 \
    int kept = errno;                                 \
    *(void **)&name##_next = dlsym(RTLD_NEXT, #name); \
    errno = kept;                                     \
  }

typedef void *(*mmap_type)(void *, size_t, int, int, int, off_t);
SHOWN void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
  NEXT(mmap_type, mmap)
  if (!fails(mapping, "mmap", CALLER)) return mmap_next(at, size, protection, flags, fd, offset);
  errno = ENOMEM;
  return MAP_FAILED;
}
SHOWN void *mmap64(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
  NEXT(mmap_type, mmap64)
  if (!fails(mapping, "mmap64", CALLER))
    return mmap64_next(at, size, protection, flags, fd, offset);
  errno = ENOMEM;
  return MAP_FAILED;
}
typedef int (*mprotect_type)(void *, size_t, int);
SHOWN int mprotect(void *at, size_t size, int protection) {
  NEXT(mprotect_type, mprotect)
  if (!fails(mapping, "mprotect", CALLER)) return mprotect_next(at, size, protection);
  errno = ENOMEM;
  return -1;
}
typedef int (*madvise_type)(void *, size_t, int);
SHOWN int madvise(void *at, size_t size, int advice) {
  NEXT(madvise_type, madvise)
  if (!fails(mapping, "madvise", CALLER)) return madvise_next(at, size, advice);
  errno = ENOMEM;
  return -1;
}

static mode_t mode_of(int flags, va_list *rest) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(*rest, mode_t) : 0;
}
#define OPENS(name)                                                         \
  typedef int (*name##_type)(const char *, int, ...);                       \
  SHOWN int name(const char *path, int flags, ...) {                        \
    NEXT(name##_type, name)                                                 \
    va_list rest;                                                           \
    mode_t mode;                                                            \
    va_start(rest, flags);                                                  \
    mode = mode_of(flags, &rest);                                           \
    va_end(rest);                                                           \
    if (!fails(file, #name, CALLER)) return name##_next(path, flags, mode); \
    errno = EMFILE;                                                         \
    return -1;                                                              \
  }
OPENS(open)
OPENS(open64)
#define OPENS_AT(name)                                                          \
  typedef int (*name##_type)(int, const char *, int, ...);                      \
  SHOWN int name(int at, const char *path, int flags, ...) {                    \
    NEXT(name##_type, name)                                                     \
    va_list rest;                                                               \
    mode_t mode;                                                                \
    va_start(rest, flags);                                                      \
    mode = mode_of(flags, &rest);                                               \
    va_end(rest);                                                               \
    if (!fails(file, #name, CALLER)) return name##_next(at, path, flags, mode); \
    errno = EMFILE;                                                             \
    return -1;                                                                  \
  }
OPENS_AT(openat)
OPENS_AT(openat64)
#define STREAMS(name)                                                \
  typedef FILE *(*name##_type)(const char *, const char *);          \
  SHOWN FILE *name(const char *path, const char *mode) {             \
    NEXT(name##_type, name)                                          \
    if (!fails(file, #name, CALLER)) return name##_next(path, mode); \
    errno = EMFILE;                                                  \
    return NULL;                                                     \
  }
STREAMS(fopen)
STREAMS(fopen64)
#define MOVES(name, pointer)                                              \
  typedef ssize_t (*name##_type)(int, pointer, size_t);                   \
  SHOWN ssize_t name(int fd, pointer bytes, size_t size) {                \
    NEXT(name##_type, name)                                               \
    if (!fails(file, #name, CALLER)) return name##_next(fd, bytes, size); \
    errno = EIO;                                                          \
    return -1;                                                            \
  }
MOVES(read, void *)
MOVES(write, const void *)
typedef int (*ftruncate_type)(int, off_t);
SHOWN int ftruncate(int fd, off_t size) {
  NEXT(ftruncate_type, ftruncate)
  if (!fails(file, "ftruncate", CALLER)) return ftruncate_next(fd, size);
  errno = ENOSPC;
  return -1;
}
typedef int (*fcntl_type)(int, int, ...);
SHOWN int fcntl(int fd, int command, ...) {
  NEXT(fcntl_type, fcntl)
  va_list rest;
  void *argument;
  va_start(rest, command);
  argument = va_arg(rest, void *);
  va_end(rest);
  if (!fails(file, "fcntl", CALLER)) return fcntl_next(fd, command, argument);
  errno = EMFILE;
  return -1;
}
