/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Runs a program of counting.h step by step where it counts, and prints for each phase the
 * most locked instructions, allocations and system calls:
 *
 *   locked_steps DEVICE SPIN-LOCK-OFFSET PROGRAM ARGS...
 *
 * DEVICE is the library of the software HCA, whose own instructions are not counted.
 * SPIN-LOCK-OFFSET is that of its pthread_spin_lock(), which counts as one locked instruction.
 * x86-64 only.
 */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

struct range {
  uint64_t begin, end;
};

static pid_t pid;
static struct range device;      /* all of the library's */
static uint64_t spin_lock;       /* in the program */
static uint64_t allocations[16]; /* functions of its libc */
static int allocators;

static void die(const char *what) {
  fprintf(stderr, "locked_steps: %s: %s\n", what, strerror(errno));
  exit(1);
}

static void read_memory(uint64_t at, void *to, size_t bytes) {
  struct iovec here = {to, bytes}, there = {(void *)at, bytes};

  memset(to, 0, bytes);
  if (process_vm_readv(pid, &here, 1, &there, 1, 0) <= 0) die("process_vm_readv");
}

/* The address of a library in a process. */
static struct range find_library(const char *process, const char *name) {
  char path[64], line[4096];
  struct range found = {0, 0};
  FILE *maps;

  snprintf(path, sizeof(path), "/proc/%s/maps", process);
  maps = fopen(path, "r");
  if (!maps) die(path);
  while (fgets(line, sizeof(line), maps)) {
    const char *file = strrchr(line, '/');
    struct range range;

    if (!file || strncmp(file + 1, name, strlen(name)) != 0) continue;
    if (sscanf(line, "%lx-%lx", &range.begin, &range.end) != 2) continue;
    if (!found.begin) found.begin = range.begin;
    found.end = range.end;
  }
  fclose(maps);
  return found;
}

/* The program's libc is the same file as this program's. */
static void find_allocators(void) {
  static void *(*const functions[])(size_t) = {malloc, valloc};
  char process[16];
  struct range ours, theirs;
  size_t i;
  const uint64_t addresses[] = {
      (uint64_t)(uintptr_t)functions[0],  (uint64_t)(uintptr_t)functions[1],
      (uint64_t)(uintptr_t)calloc,        (uint64_t)(uintptr_t)realloc,
      (uint64_t)(uintptr_t)free,          (uint64_t)(uintptr_t)posix_memalign,
      (uint64_t)(uintptr_t)aligned_alloc, (uint64_t)(uintptr_t)memalign};

  snprintf(process, sizeof(process), "%d", pid);
  ours = find_library("self", "libc.so.6");
  theirs = find_library(process, "libc.so.6");
  if (!ours.begin || !theirs.begin) die("libc.so.6");
  for (i = 0; i < sizeof(addresses) / sizeof(addresses[0]); ++i)
    allocations[allocators++] = addresses[i] - ours.begin + theirs.begin;
}

/* Whether the instruction is locked: by its prefix, or an exchange with memory. */
static int is_locked(const uint8_t *at) {
  for (;; ++at) {
    switch (*at) {
      case 0xf0: return 1;
      case 0x26:
      case 0x2e:
      case 0x36:
      case 0x3e:
      case 0x64:
      case 0x65:
      case 0x66:
      case 0x67:
      case 0xf2:
      case 0xf3: continue;
      default: break;
    }
    if ((*at & 0xf0) == 0x40) continue;
    return (*at == 0x86 || *at == 0x87) && at[1] >> 6 != 3;
  }
}

static int is_allocation(uint64_t at) {
  int i;

  for (i = 0; i < allocators; ++i)
    if (allocations[i] == at) return 1;
  return 0;
}

static void go_on(int request, struct user_regs_struct *regs) {
  int status = 0;

  if (ptrace(request, pid, 0, 0) != 0 || waitpid(pid, &status, 0) != pid) die("ptrace");
  if (!WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP) {
    fprintf(stderr, "locked_steps: the program ended with status %#x\n", (unsigned)status);
    exit(1);
  }
  if (ptrace(PTRACE_GETREGS, pid, 0, regs) != 0) die("PTRACE_GETREGS");
}

/* From the first instruction of a function to behind its return, at full speed. */
static void run_function(struct user_regs_struct *regs) {
  uint64_t back;
  long code;

  read_memory(regs->rsp, &back, sizeof(back));
  errno = 0;
  code = ptrace(PTRACE_PEEKTEXT, pid, back, 0);
  if (errno != 0 || ptrace(PTRACE_POKETEXT, pid, back, (code & ~0xffL) | 0xcc) != 0) die("break");
  go_on(PTRACE_CONT, regs);
  if (ptrace(PTRACE_POKETEXT, pid, back, code) != 0) die("break");
  regs->rip = back;
  if (ptrace(PTRACE_SETREGS, pid, 0, regs) != 0) die("PTRACE_SETREGS");
}

struct found {
  unsigned locked, allocations, calls;
};

/* From behind a marker to the next one. regs: at the latter. */
static struct found step_through(struct user_regs_struct *regs) {
  struct found found = {0, 0, 0};

  for (;;) {
    uint8_t code[16];

    if (regs->rip >= device.begin && regs->rip < device.end) {
      found.locked += regs->rip == spin_lock;
      run_function(regs);
    }
    read_memory(regs->rip, code, sizeof(code));
    if (code[0] == 0xcc) return found;
    found.locked += (unsigned)is_locked(code);
    found.allocations += (unsigned)is_allocation(regs->rip);
    found.calls += code[0] == 0x0f && code[1] == 0x05;
    go_on(PTRACE_SINGLESTEP, regs);
  }
}

/* To the next marker, at full speed. False: the program has ended. */
static int run(struct user_regs_struct *regs) {
  int status, signal = 0;

  for (;;) {
    if (ptrace(PTRACE_CONT, pid, 0, signal) != 0 || waitpid(pid, &status, 0) != pid) die("run");
    if (WIFEXITED(status)) {
      if (WEXITSTATUS(status) != 0) exit(WEXITSTATUS(status));
      return 0;
    }
    if (!WIFSTOPPED(status)) die("killed");
    signal = WSTOPSIG(status);
    if (signal == SIGTRAP) break;
  }
  if (ptrace(PTRACE_GETREGS, pid, 0, regs) != 0) die("PTRACE_GETREGS");
  return 1;
}

int main(int argc, char **argv) {
  struct user_regs_struct regs;
  int status;

  if (argc < 4) return 2;
  pid = fork();
  if (pid < 0) die("fork");
  if (pid == 0) {
    if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0) _exit(77);
    setenv("LD_PRELOAD", getenv("LOCKED_STEPS_PRELOAD"), 1);
    setenv("COUNTING_STEPS", "1", 1);
    execv(argv[3], argv + 3);
    _exit(127);
  }
  if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) return WEXITSTATUS(status);
  while (run(&regs)) {
    char process[16], phase[64];
    struct found found;

    if (!device.begin) {
      const char *name = strrchr(argv[1], '/');

      snprintf(process, sizeof(process), "%d", pid);
      device = find_library(process, name ? name + 1 : argv[1]);
      if (!device.begin) die("the device is not loaded");
      spin_lock = device.begin + strtoul(argv[2], NULL, 16);
      find_allocators();
    }
    found = step_through(&regs);
    read_memory(regs.rdi, phase, sizeof(phase) - 1);
    phase[sizeof(phase) - 1] = '\0';
    printf("%s %u %u %u\n", phase, found.locked, found.allocations, found.calls);
    /* Over the marker, which has not been executed. */
    regs.rip += 1;
    if (ptrace(PTRACE_SETREGS, pid, 0, &regs) != 0) die("PTRACE_SETREGS");
  }
  return 0;
}
