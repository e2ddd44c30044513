/* A libibverbs of another age. Only its name and its symbols are looked at; what
   is called ends the process. */
#include <stdlib.h>

__attribute__((visibility("default"))) void *ibv_get_device_list(int *count);
void *ibv_get_device_list(int *count) {
  (void)count;
  abort();
}

#ifdef MLNX_OFED
__attribute__((visibility("default"))) void *ibv_exp_get_device_list(int *count);
void *ibv_exp_get_device_list(int *count) {
  (void)count;
  abort();
}
#endif
