// The command ibvexp as it is typed: starts ibvexp-main, or ibvexp-audit, beside it in a build
// folder or in LIBEXEC. It is linked statically, without a C library, so that no LD_PRELOAD and
// no LD_LIBRARY_PATH of the user keeps it from starting (libvma in LD_PRELOAD does so
// to programs without RDMA, an old libstdc++ in LD_LIBRARY_PATH to those in C++). What
// would do the same to these two gets another first letter here, which
// take_back_environment() replaces.
#include <asm/unistd.h>
#include <linux/fcntl.h>
#include <linux/limits.h>

#include "tool/start/hidden.h"

#if defined(__x86_64__)
__asm__(
    ".globl _start\n_start:\n xor %ebp, %ebp\n mov %rsp, %rdi\n and $-16, %rsp\n call launch\n");

static long system_call(long number, long a, long b, long c, long d) {
  long result;
  register long fourth __asm__("r10") = d;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
                   : "rcx", "r11", "memory");
  return result;
}
#elif defined(__aarch64__)
__asm__(".globl _start\n_start:\n mov x29, #0\n mov x0, sp\n b launch\n");

static long system_call(long number, long a, long b, long c, long d) {
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
  return x0;
}
#else
#error "ibvexp is for x86-64 and AArch64"
#endif

static unsigned long length(const char *text) {
  unsigned long n = 0;
  // Volatile, or the compiler would call strlen().
  while (((const volatile char *)text)[n] != '\0') n++;
  return n;
}

static int begins_with(const char *text, const char *start) {
  while (*start != '\0' && *text == *start) text++, start++;
  return *start == '\0';
}

static void say(const char *text) { system_call(__NR_write, 2, (long)text, (long)length(text), 0); }

static void hide(char **environment) {
  for (; *environment != 0; environment++)
    if (begins_with(*environment, HIDDEN_PRELOAD) ||
        begins_with(*environment, HIDDEN_LIBRARY_PATH) || begins_with(*environment, HIDDEN_AUDIT))
      **environment = HIDDEN_LETTER;
}

// Behind what is there already.
static int append(char *path, unsigned long *used, const char *text) {
  const unsigned long n = length(text);
  if (*used + n >= PATH_MAX) return 0;
  for (unsigned long i = 0; i <= n; i++) ((volatile char *)path)[*used + i] = text[i];
  *used += n;
  return 1;
}

// Replaces the file name at the end of the path.
static int name_beside(char *path, unsigned long used, const char *folder, const char *name) {
  while (used > 0 && path[used - 1] != '/') used--;
  return append(path, &used, folder) && append(path, &used, name);
}

// The stack as the kernel leaves it: argc, argv, a null, the environment.
__attribute__((noreturn, used)) void launch(long *stack) {
  static char self[PATH_MAX], program[PATH_MAX];
  char **argv = (char **)(stack + 1);
  char **environment = argv + stack[0] + 1;
  const long n =
      system_call(__NR_readlinkat, AT_FDCWD, (long)"/proc/self/exe", (long)self, sizeof(self) - 1);
  if (n <= 0) {
    say("ibvexp: /proc is not mounted: mount -t proc proc /proc\n");
    system_call(__NR_exit_group, 2, 0, 0, 0);
  }
  hide(environment);
  if (stack[0] > 0) argv[0] = self;  // where own_path() finds it
  const int audits = stack[0] > 1 && begins_with(argv[1], "audit") && argv[1][5] == '\0';
  const char *name = audits ? "ibvexp-audit" : "ibvexp-main";
  for (int i = 0; i < 2; i++) {
    for (long j = 0; j < n; j++) ((volatile char *)program)[j] = self[j];
    if (name_beside(program, (unsigned long)n, i == 0 ? "" : LIBEXEC_FROM_BIN "/", name))
      system_call(__NR_execve, (long)program, (long)argv, (long)environment, 0);
  }
  say("ibvexp: ");
  say(name);
  say(" is neither beside ibvexp nor in " LIBEXEC_FROM_BIN "\n");
  system_call(__NR_exit_group, 2, 0, 0, 0);
  __builtin_unreachable();
}
