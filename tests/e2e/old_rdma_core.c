/* Makes an rdma-core of today one of release 28 to those who look functions up:
   what is newer is not found. Preloaded behind libibverbs_exp, so that the next
   definition is the same one for both. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* Newest nodes of release 28. */
static int newer(const char *version) {
  int major, minor;
  if (sscanf(version, "IBVERBS_%d.%d", &major, &minor) == 2) return minor > 8;
  if (sscanf(version, "MLX5_%d.%d", &major, &minor) == 2) return minor > 12;
  if (sscanf(version, "RDMACM_%d.%d", &major, &minor) == 2) return minor > 2;
  return 0;
}

__attribute__((visibility("default"))) void *dlvsym(void *handle, const char *name,
                                                    const char *version) {
  static void *(*real)(void *, const char *, const char *);
  if (newer(version)) return NULL;
  if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "dlvsym");
  return real(handle, name, version);
}
