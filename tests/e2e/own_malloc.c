/* A program with an allocator of its own, which glibc allows: malloc, calloc, realloc, free
 * and the aligned ones, but no malloc_usable_size(), which would look into blocks that it
 * has not made. Queues are made, resized and taken down. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Each block lies behind its size and a word of ones, in memory that is not given back. */
static _Alignas(4096) unsigned char arena[256u << 20];
static atomic_size_t used;

static void *take(size_t alignment, size_t size) {
  if (alignment < 16) alignment = 16;
  const size_t at = atomic_fetch_add(&used, size + 2 * alignment + 64);
  if (at + size + 2 * alignment + 64 > sizeof(arena)) {
    errno = ENOMEM;
    return NULL;
  }
  unsigned char *block =
      (unsigned char *)(((uintptr_t)(arena + at) + 16 + alignment - 1) & ~(alignment - 1));
  /* Where glibc has the size of its own blocks. */
  memset(block - 8, 0xff, 8);
  memcpy(block - 16, &size, sizeof(size));
  return block;
}
void *malloc(size_t size) { return take(16, size); }
void free(void *block) { (void)block; }
void *calloc(size_t count, size_t size) {
  if (size != 0 && count > SIZE_MAX / size) return NULL;
  return take(16, count * size); /* never used before */
}
void *realloc(void *block, size_t size) {
  void *fresh = take(16, size);
  size_t had = 0;
  if (block != NULL) memcpy(&had, (unsigned char *)block - 16, sizeof(had));
  if (fresh != NULL && block != NULL) memcpy(fresh, block, had < size ? had : size);
  return fresh;
}
void *aligned_alloc(size_t alignment, size_t size) { return take(alignment, size); }
void *memalign(size_t alignment, size_t size) { return take(alignment, size); }
int posix_memalign(void **block, size_t alignment, size_t size) {
  *block = take(alignment, size);
  return *block != NULL ? 0 : ENOMEM;
}

#define NEED(what)                                    \
  do {                                                \
    if (!(what)) {                                    \
      printf("failed: %s, errno %d\n", #what, errno); \
      return 1;                                       \
    }                                                 \
  } while (0)

int main(void) {
  struct ibv_device **list = ibv_get_device_list(NULL);
  NEED(list != NULL && list[0] != NULL);
  struct ibv_context *context = ibv_open_device(list[0]);
  NEED(context != NULL);
  struct ibv_pd *pd = ibv_alloc_pd(context);
  NEED(pd != NULL);
  for (int i = 0; i < 20; ++i) {
    struct ibv_cq *cq = ibv_create_cq(context, 50 + i, NULL, NULL, 0);
    NEED(cq != NULL);
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC};
    init.cap = (struct ibv_qp_cap){8, 8, 1, 1, 0};
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    NEED(qp != NULL);
    NEED(ibv_resize_cq(cq, 300 + i) == 0);
    struct ibv_wc wc;
    NEED(ibv_poll_cq(cq, 1, &wc) == 0);
    NEED(ibv_destroy_qp(qp) == 0);
    NEED(ibv_resize_cq(cq, 50) == 0);
    NEED(ibv_destroy_cq(cq) == 0);
  }
  NEED(ibv_dealloc_pd(pd) == 0);
  NEED(ibv_close_device(context) == 0);
  puts("done");
  return 0;
}
