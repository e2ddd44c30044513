/* What the static libstdc++ and libgcc of a newer compiler want of a newer glibc than
   the tarball is built against. Hidden: not exported from the libraries. */
#define _GNU_SOURCE
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#pragma GCC visibility push(hidden)

/* Of 2.30, behind std::condition_variable::wait_for(), whose condition variables count in
   CLOCK_REALTIME. If that clock is set meanwhile the wait is too short or too long. */
int pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock,
                           const struct timespec *until) {
  const long second = 1000000000;
  struct timespec now, end;
  if (clock_gettime(clock, &now) != 0 || clock_gettime(CLOCK_REALTIME, &end) != 0) abort();
  end.tv_sec += until->tv_sec - now.tv_sec;
  end.tv_nsec += until->tv_nsec - now.tv_nsec;
  end.tv_sec += end.tv_nsec < 0 ? -1 : end.tv_nsec / second;
  end.tv_nsec = (end.tv_nsec + second) % second;
  return pthread_cond_timedwait(cond, mutex, &end);
}

/* Of 2.32. A program may have threads. */
char __libc_single_threaded = 0;

/* Of 2.36, behind std::random_device. */
uint32_t arc4random(void);
uint32_t arc4random(void) {
  uint32_t number;
  if (getrandom(&number, sizeof number, 0) != sizeof number) abort();
  return number;
}

/* Of 2.35, behind the unwinder; the structure as in glibc's <dlfcn.h>, x86-64. */
struct dl_find_object {
  unsigned long long flags;
  void *map_start, *map_end;
  struct link_map *link_map;
  void *eh_frame;
  unsigned long long reserved[7];
};

struct search {
  uintptr_t pc;
  struct dl_find_object *found;
};

static int look(struct dl_phdr_info *info, size_t size, void *data) {
  (void)size;
  const struct search *s = data;
  uintptr_t eh_frame = 0, start = UINTPTR_MAX, end = 0;
  int inside = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr) *part = &info->dlpi_phdr[i];
    const uintptr_t at = info->dlpi_addr + part->p_vaddr;
    if (part->p_type == PT_GNU_EH_FRAME) eh_frame = at;
    if (part->p_type != PT_LOAD) continue;
    inside |= s->pc >= at && s->pc - at < part->p_memsz;
    if (at < start) start = at;
    if (at + part->p_memsz > end) end = at + part->p_memsz;
  }
  if (!inside || eh_frame == 0) return 0;
  *s->found = (struct dl_find_object){
      .map_start = (void *)start, .map_end = (void *)end, .eh_frame = (void *)eh_frame};
  return 1;
}

int _dl_find_object(void *pc, struct dl_find_object *out);
int _dl_find_object(void *pc, struct dl_find_object *out) {
  struct search s = {(uintptr_t)pc, out};
  return dl_iterate_phdr(look, &s) == 1 ? 0 : -1;
}
