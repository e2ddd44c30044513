/* Opens the device, and files until so many descriptors are left: few_descriptors LEFT. */
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
  struct ibv_device **list = ibv_get_device_list(NULL);
  int left = argc > 1 ? atoi(argv[1]) : 0, fd, last = -1;

  if (!list || !list[0] || !ibv_open_device(list[0])) {
    perror("ibv_open_device");
    return 1;
  }
  while ((fd = open("/dev/null", O_RDONLY)) >= 0) last = fd;
  if (last < left) return 1;
  while (left-- > 0) close(last--);
  printf("buffered until the end\n");
  return 0;
}
