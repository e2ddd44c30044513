/*
 * Preloaded, makes every device one of another provider: its table of operations
 * is a copy, and libmlx5 knows its own devices by the address of the table. All
 * of mlx5dv_* answers as it does for the hardware of others (EOPNOTSUPP), while
 * what goes through libibverbs works.
 */
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>

enum { TABLE = 160 }; /* struct verbs_device_ops of rdma-core is smaller */

/* As libibverbs has them: the private part begins behind the public one. */
struct provider_device {
  struct ibv_device device;
  const void *ops;
};

__attribute__((constructor)) static void turn_foreign(void) {
  int count = 0, i;
  struct ibv_device **list = ibv_get_device_list(&count);

  if (!list) return;
  for (i = 0; i < count; ++i) {
    struct provider_device *device = (struct provider_device *)list[i];
    void *copy = malloc(TABLE);

    if (!copy) abort();
    memcpy(copy, device->ops, TABLE);
    device->ops = copy;
  }
  ibv_free_device_list(list);
}
