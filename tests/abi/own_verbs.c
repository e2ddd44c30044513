/* Functions of MLNX_OFED that rdma-core made macros of: programs have members and functions of
   these names, of their own. */
#include <infiniband/verbs.h>
#include <stddef.h>

struct loaded {
  struct ibv_mr *(*ibv_reg_mr)(struct ibv_pd *, void *, size_t, int);
  struct ibv_device **(*ibv_get_device_list)(int *);
};

static int called;

static struct ibv_mr *register_it(struct ibv_pd *pd, void *at, size_t size, int access) {
  called += pd == NULL && at == &called && size == sizeof(called) && access == 1;
  return NULL;
}

static struct ibv_device **list_none(int *count) {
  called += 2;
  *count = 0;
  return NULL;
}

int main(void) {
  const struct loaded verbs = {register_it, list_none};
  int count = 1;

  (void)verbs.ibv_reg_mr(NULL, &called, sizeof(called), IBV_ACCESS_LOCAL_WRITE);
  (void)verbs.ibv_get_device_list(&count);
  return called == 3 && count == 0 ? 0 : 1;
}
