/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The phases of counting.h, timed instead of counted. The software HCA would run inside of
 * libmlx5's spin locks: while a phase is timed, these are libc's. The program prints the
 * nanoseconds of each phase when it ends. x86-64 only, linked with libmlx5, with its symbols
 * exported.
 */
#ifndef TIMING_H
#define TIMING_H

#include <dlfcn.h>
#include <pthread.h>

#define ROUNDS 40
#define MOST_PHASES 256
#define MOST_IN_A_ROW 48
#define MOST_CALLS (ROUNDS * MOST_IN_A_ROW)

static struct timed {
  const char *verb, *name;
  int count, calls;
  double ticks[MOST_CALLS];
} timed[MOST_PHASES];
static volatile int timing;
static uint64_t begun, of_threads;
static __thread uint64_t thread_begun;

/* As many calls as a queue has room for: all but the first find their code in the caches. */
static inline int in_a_row(int count) { return count < MOST_IN_A_ROW ? MOST_IN_A_ROW / count : 1; }

#define SPIN_FUNCTIONS(each) \
  each(pthread_spin_lock) each(pthread_spin_trylock) each(pthread_spin_unlock)
#define DECLARE(name) \
  static int (*libc_##name)(pthread_spinlock_t *), (*next_##name)(pthread_spinlock_t *);
SPIN_FUNCTIONS(DECLARE)

static __attribute__((constructor)) void find_spin_functions(void) {
  void *const libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);

#define FIND(name)                             \
  *(void **)&libc_##name = dlsym(libc, #name); \
  *(void **)&next_##name = dlsym(RTLD_NEXT, #name);
  SPIN_FUNCTIONS(FIND)
}

#define DEFINE(name)                         \
  int name(pthread_spinlock_t *lock) {       \
    if (timing) return libc_##name(lock);    \
    if (!next_##name) find_spin_functions(); \
    return next_##name(lock);                \
  }
SPIN_FUNCTIONS(DEFINE)

/* For the device not to wait for other programs on a loaded machine. */
int sched_yield(void) { return 0; }

static inline uint64_t ticks(void) {
  uint32_t low, high;

  __asm__ volatile("lfence\n\trdtsc\n\tlfence" : "=a"(low), "=d"(high)::"memory");
  return (uint64_t)high << 32 | low;
}

static inline void begin(void) {
  timing = 1;
  of_threads = 0;
  begun = ticks();
}

/* In threads beside the one that begins and ends: what counts is their own time, added up. */
static inline void begin_thread(void) { thread_begun = ticks(); }
static inline void end_thread(void) {
  __atomic_add_fetch(&of_threads, ticks() - thread_begun, __ATOMIC_RELAXED);
}

static inline void give_up(void) { timing = 0; }

static inline void end(const char *verb, const char *name, int count) {
  const uint64_t now = ticks(), spent = of_threads ? of_threads : now - begun;
  struct timed *of = timed;

  timing = 0;
  while (of->verb && (of->verb != verb || of->name != name || of->count != count)) ++of;
  of->verb = verb;
  of->name = name;
  of->count = count;
  if (of->calls < MOST_CALLS) of->ticks[of->calls++] = (double)spent;
}

/* The device works in calls of its spin lock: a few, since it looks at some doorbells in each. */
static inline void run_device(void) {
  pthread_spinlock_t lock;
  int i;

  pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE);
  for (i = 0; i < 4; ++i) {
    pthread_spin_lock(&lock);
    pthread_spin_unlock(&lock);
  }
}
static inline void wait_for_device(void) {
  int i;

  for (i = 0; i < 25; ++i) run_device();
}

static double seconds(void) {
  struct timespec now;

  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
static double first_seconds;
static uint64_t first_ticks;
static __attribute__((constructor)) void start_clock(void) {
  first_seconds = seconds();
  first_ticks = ticks();
}

static int compare(const void *one, const void *other) {
  const double a = *(const double *)one, b = *(const double *)other;

  return (a > b) - (a < b);
}
/* The lower quartile of the means of calls in a row: on many processors the TSC moves in steps of 10
   ns. A call of more than twice the row's median was interrupted, or the first one. */
static double typical(struct timed *of) {
  const int most = in_a_row(of->count), row = most < of->calls ? most : of->calls;
  int first, i, rows = 0;

  for (first = 0; first + row <= of->calls; first += row) {
    double *const calls = of->ticks + first;
    double sum = 0;

    qsort(calls, (size_t)row, sizeof(calls[0]), compare);
    for (i = 0; i < row && calls[i] <= 2 * calls[row / 2]; ++i) sum += calls[i];
    of->ticks[rows++] = sum / i;
  }
  qsort(of->ticks, (size_t)rows, sizeof(of->ticks[0]), compare);
  return of->ticks[rows / 4];
}
static __attribute__((destructor)) void report(void) {
  const double tick = (seconds() - first_seconds) * 1e9 / (double)(ticks() - first_ticks);
  struct timed *of;

  for (of = timed; of->verb; ++of)
    printf("%s-%s-%d %.2f\n", of->verb, of->name, of->count, typical(of) * tick);
}

#endif
