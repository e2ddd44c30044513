/*
 * Lets one allocation of libibverbs_exp fail: the nth after fail_alloc_arm(n).
 * Those of other libraries and of the program always succeed.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#define SHOWN __attribute__((visibility("default")))

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);

static __thread long left;
static __thread int fired;

SHOWN void fail_alloc_arm(long nth) {
  fired = 0;
  left = nth;
}

/* Whether it failed. */
SHOWN int fail_alloc_disarm(void) {
  left = 0;
  return fired;
}

static int fails(void *caller) {
  Dl_info where;
  long due = left;

  if (due == 0) return 0;
  left = 0; /* dladdr may allocate */
  if (!dladdr(caller, &where) || !strstr(where.dli_fname, "libibverbs_exp")) {
    left = due;
    return 0;
  }
  left = due - 1;
  if (left != 0) return 0;
  fired = 1;
  errno = ENOMEM;
  return 1;
}

SHOWN void *malloc(size_t size) {
  return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(size);
}

SHOWN void *calloc(size_t count, size_t size) {
  return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(count, size);
}
