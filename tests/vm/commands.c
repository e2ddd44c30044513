/*
 * Time of a firmware command, as the guest sees it:  commands DEVICE COUNT
 * Allocates and frees COUNT protection domains, which takes two commands each.
 */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void) {
  struct timespec t;

  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static struct ibv_context *open_device(const char *name) {
  struct ibv_device **list = ibv_get_device_list(NULL);
  int i;

  for (i = 0; list && list[i]; ++i)
    if (strcmp(ibv_get_device_name(list[i]), name) == 0) return ibv_open_device(list[i]);
  return NULL;
}

int main(int argc, char **argv) {
  struct ibv_context *context = argc == 3 ? open_device(argv[1]) : NULL;
  const int count = argc == 3 ? atoi(argv[2]) : 0;
  double start;
  int i;

  if (!context) {
    fprintf(stderr, "usage: commands DEVICE COUNT\n");
    return 2;
  }
  start = now();
  for (i = 0; i < count; ++i) {
    struct ibv_pd *pd = ibv_alloc_pd(context);

    if (!pd || ibv_dealloc_pd(pd)) {
      perror("commands");
      return 1;
    }
  }
  printf("%.1f us a command\n", (now() - start) * 1e6 / (2 * count));
  return 0;
}
