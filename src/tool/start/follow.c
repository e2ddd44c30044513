// Preloaded by `ibvexp run`, and by nothing else: what a process of the program starts is
// preloaded too, although LD_PRELOAD was replaced (env LD_PRELOAD=libjemalloc.so PROGRAM)
// or cleared (env -i). The environment of this process stays as its program made it, only
// the one that goes to exec or posix_spawn is completed. For `ibvexp run --fail-on-refused`
// it lists what is started.
//
// exec is called between vfork() and the end, and in signal handlers: nothing here takes
// a lock or allocates once the library is loaded.
#include <alloca.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tool/start/started.h"

#define EXPORT __attribute__((visibility("default")))

#define PRELOAD "LD_PRELOAD="
#define TALLY "IBVEXP_TALLY="

// The list that `ibvexp run` put in front of LD_PRELOAD; empty: nothing is completed.
static char list[8 * PATH_MAX];
// Where programs that are started are listed; empty: nowhere.
static char programs[PATH_MAX + sizeof(STARTED_PROGRAMS)];
// The variables of the libraries in that list, which env -i clears with it.
static char texts[1 << 14];
static const char *ours[128];
static size_t ours_count;

static int (*next_execve)(const char *, char *const[], char *const[]);
static int (*next_execvpe)(const char *, char *const[], char *const[]);
static int (*next_fexecve)(int, char *const[], char *const[]);
static int (*next_execveat)(int, const char *, char *const[], char *const[], int);
typedef int spawn(pid_t *, const char *, const posix_spawn_file_actions_t *,
                  const posix_spawnattr_t *, char *const[], char *const[]);
static spawn *next_posix_spawn, *next_posix_spawnp;

static int begins_with(const char *text, const char *start) {
  return strncmp(text, start, strlen(start)) == 0;
}

static void keep_variables(void) {
  size_t used = 0;
  for (char **variable = environ; variable != NULL && *variable != NULL; variable++) {
    const size_t size = strlen(*variable) + 1;
    if (!begins_with(*variable, "IBVEXP_") && !begins_with(*variable, "SOFTHCA_")) continue;
    if (ours_count == sizeof(ours) / sizeof(*ours) || size > sizeof(texts) - used) return;
    ours[ours_count++] = memcpy(texts + used, *variable, size);
    used += size;
  }
}

static void copy(char *to, size_t size, const char *name) {
  const char *value = getenv(name);
  if (value != NULL && strlen(value) < size) strcpy(to, value);
}

__attribute__((constructor)) static void begin(void) {
  *(void **)&next_execve = dlsym(RTLD_NEXT, "execve");
  *(void **)&next_execvpe = dlsym(RTLD_NEXT, "execvpe");
  *(void **)&next_fexecve = dlsym(RTLD_NEXT, "fexecve");
  *(void **)&next_execveat = dlsym(RTLD_NEXT, "execveat");
  *(void **)&next_posix_spawn = dlsym(RTLD_NEXT, "posix_spawn");
  *(void **)&next_posix_spawnp = dlsym(RTLD_NEXT, "posix_spawnp");
  copy(list, sizeof(list), "IBVEXP_FOLLOW");
  keep_variables();
  copy(programs, PATH_MAX, "IBVEXP_TALLY");
  strcat(programs, STARTED_PROGRAMS);
  if (access(programs, W_OK) != 0) *programs = '\0';
}

static const char *find(char *const environment[], const char *variable, size_t name) {
  for (; environment != NULL && *environment != NULL; environment++)
    if (strncmp(*environment, variable, name) == 0) return *environment;
  return NULL;
}

static int has_list(const char *preload) {
  return preload != NULL && strstr(preload, list) != NULL;
}

static int lost_variables(char *const environment[]) {
  for (size_t i = 0; i < ours_count; i++)
    if (begins_with(ours[i], TALLY)) return find(environment, TALLY, strlen(TALLY)) == NULL;
  return 0;
}

// Bytes that complete() needs; 0: there is nothing to complete.
static size_t missing(char *const environment[]) {
  if (*list == '\0') return 0;
  const char *had = find(environment, PRELOAD, strlen(PRELOAD));
  if (has_list(had) && !lost_variables(environment)) return 0;
  size_t entries = ours_count + 2;
  for (char *const *e = environment; e != NULL && *e != NULL; e++) entries++;
  return entries * sizeof(char *) + strlen(PRELOAD) + strlen(list) + 1 +
         (had != NULL ? strlen(had) : 0) + 1;
}

// The environment with the list in front of LD_PRELOAD, made in the space.
static char **complete(char *const environment[], void *space) {
  const char *had = find(environment, PRELOAD, strlen(PRELOAD));
  size_t entries = ours_count + 2, used = 0;
  for (char *const *e = environment; e != NULL && *e != NULL; e++) entries++;
  char **out = space;
  char *preload = (char *)(out + entries);
  if (has_list(had)) {
    strcpy(preload, had);
  } else {
    strcpy(preload, PRELOAD);
    strcat(preload, list);
    if (had != NULL && had[strlen(PRELOAD)] != '\0') {
      strcat(preload, ":");
      strcat(preload, had + strlen(PRELOAD));
    }
  }
  out[used++] = preload;
  for (char *const *e = environment; e != NULL && *e != NULL; e++)
    if (!begins_with(*e, PRELOAD)) out[used++] = *e;
  for (size_t i = 0; i < ours_count; i++)
    if (find(environment, ours[i], (size_t)(strchr(ours[i], '=') - ours[i]) + 1) == NULL)
      out[used++] = (char *)ours[i];
  out[used] = NULL;
  return out;
}

// In the caller's frame.
#define COMPLETED(environment)                                                             \
  __extension__({                                                                          \
    const size_t bytes = missing(environment);                                             \
    bytes != 0 ? complete(environment, alloca(bytes)) : (char **)(uintptr_t)(environment); \
  })

// folder/name, where that fits.
static int join(char *out, size_t size, const char *folder, size_t length, const char *name) {
  if (length + 1 + strlen(name) >= size) return 0;
  memcpy(out, folder, length);
  out[length] = '/';
  strcpy(out + length + 1, name);
  return 1;
}

// In one write, since all processes of the program write there.
static void note(const char *file, char *const environment[]) {
  if (*programs == '\0' || file == NULL || access(file, X_OK) != 0) return;
  const int error = errno;
  const char *preload = find(environment, PRELOAD, strlen(PRELOAD));
  const int has = preload != NULL && strstr(preload, "libibverbs_exp") != NULL;
  char here[PATH_MAX], entry[2 * PATH_MAX] = {has ? STARTED_PRELOADED : STARTED_WITHOUT};
  const int known = *file == '/' ? join(entry + 1, sizeof(entry) - 1, "", 0, file + 1)
                    : getcwd(here, sizeof(here)) != NULL
                        ? join(entry + 1, sizeof(entry) - 1, here, strlen(here), file)
                        : 0;
  const int fd = known ? open(programs, O_WRONLY | O_APPEND | O_CLOEXEC) : -1;
  if (fd >= 0) {
    // A full disk: the next entry fails like this one, and the file has what it has.
    if (write(fd, entry, strlen(entry) + 1) < 0) *programs = '\0';
    close(fd);
  }
  errno = error;
}

// As execvp() looks for it.
static void note_in_path(const char *name, char *const environment[]) {
  if (*programs == '\0' || name == NULL) return;
  if (strchr(name, '/') != NULL) {
    note(name, environment);
    return;
  }
  const char *folder = getenv("PATH");
  if (folder == NULL) folder = "/bin:/usr/bin";
  for (;; folder++) {
    const size_t size = strcspn(folder, ":");
    char file[PATH_MAX];
    const int fits = join(file, sizeof(file), size != 0 ? folder : ".", size != 0 ? size : 1, name);
    if (fits && access(file, X_OK) == 0) {
      note(file, environment);
      return;
    }
    folder += size;
    if (*folder == '\0') return;
  }
}

// A file that is open, or a name below a folder that is.
static void note_at(int fd, const char *name, char *const environment[]) {
  if (*programs == '\0') return;
  if (*name == '/' || fd == AT_FDCWD) {
    note(name, environment);
    return;
  }
  char link[32] = "/proc/self/fd/", digits[12], *end = link + strlen(link);
  size_t count = 0;
  for (unsigned rest = (unsigned)fd; count == 0 || rest != 0; rest /= 10)
    digits[count++] = (char)('0' + rest % 10);
  while (count > 0) *end++ = digits[--count];
  char folder[PATH_MAX], file[PATH_MAX];
  const ssize_t length = readlink(link, folder, sizeof(folder) - 1);
  if (length <= 0) return;
  folder[length] = '\0';
  if (*name == '\0') note(folder, environment);
  else if (join(file, sizeof(file), folder, (size_t)length, name)) note(file, environment);
}

EXPORT int execve(const char *path, char *const argv[], char *const envp[]) {
  char **const environment = COMPLETED(envp);
  note(path, environment);
  return next_execve(path, argv, environment);
}

EXPORT int execv(const char *path, char *const argv[]) { return execve(path, argv, environ); }

EXPORT int execvpe(const char *file, char *const argv[], char *const envp[]) {
  char **const environment = COMPLETED(envp);
  note_in_path(file, environment);
  return next_execvpe(file, argv, environment);
}

EXPORT int execvp(const char *file, char *const argv[]) { return execvpe(file, argv, environ); }

EXPORT int fexecve(int fd, char *const argv[], char *const envp[]) {
  char **const environment = COMPLETED(envp);
  note_at(fd, "", environment);
  return next_fexecve(fd, argv, environment);
}

EXPORT int execveat(int fd, const char *path, char *const argv[], char *const envp[], int flags) {
  if (next_execveat == NULL) {
    errno = ENOSYS;
    return -1;
  }
  char **const environment = COMPLETED(envp);
  note_at(fd, path, environment);
  return next_execveat(fd, path, argv, environment, flags);
}

EXPORT int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                       const posix_spawnattr_t *attributes, char *const argv[],
                       char *const envp[]) {
  char **const environment = COMPLETED(envp);
  note(path, environment);
  return next_posix_spawn(pid, path, actions, attributes, argv, environment);
}

EXPORT int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
                        const posix_spawnattr_t *attributes, char *const argv[],
                        char *const envp[]) {
  char **const environment = COMPLETED(envp);
  note_in_path(file, environment);
  return next_posix_spawnp(pid, file, actions, attributes, argv, environment);
}

// The words of execl() and its like as a vector in the caller's frame; at then stands
// behind the null.
#define VECTOR(first, at)                                               \
  __extension__({                                                       \
    size_t count = 1;                                                   \
    va_list counting;                                                   \
    va_copy(counting, at);                                              \
    while (va_arg(counting, char *) != NULL) count++;                   \
    va_end(counting);                                                   \
    char **vector = alloca((count + 1) * sizeof(char *));               \
    vector[0] = (char *)(uintptr_t)(first);                             \
    for (size_t i = 1; i <= count; i++) vector[i] = va_arg(at, char *); \
    vector;                                                             \
  })

EXPORT int execl(const char *path, const char *first, ...) {
  va_list at;
  va_start(at, first);
  char **argv = VECTOR(first, at);
  va_end(at);
  return execve(path, argv, environ);
}

EXPORT int execlp(const char *file, const char *first, ...) {
  va_list at;
  va_start(at, first);
  char **argv = VECTOR(first, at);
  va_end(at);
  return execvpe(file, argv, environ);
}

EXPORT int execle(const char *path, const char *first, ...) {
  va_list at;
  va_start(at, first);
  char **argv = VECTOR(first, at);
  char **envp = va_arg(at, char **);
  va_end(at);
  return execve(path, argv, envp);
}
