/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Kinds of memory as programs for MLNX_OFED use them: a window that grants and
 * revokes, memory on the device, pages on demand that are fetched in time, and
 * memory that the library allocates.
 *
 *   exp_memory [-g GID]
 */
#include <sys/mman.h>

#include "loopback.h"

enum { size = 8192 };

static unsigned char out[size], in[size];
static struct ibv_mr *out_mr;

static void fill(int seed) {
  int i;

  for (i = 0; i < size; ++i) out[i] = (unsigned char)(i * 3 + (i >> 8) + seed);
}

static void bind(struct ibv_mw *mw, struct ibv_mr *mr, uint64_t length) {
  struct ibv_exp_mw_bind request = {0};
  struct ibv_exp_wc wc;

  request.qp = peer;
  request.mw = mw;
  request.wr_id = 5;
  request.exp_send_flags = IBV_EXP_SEND_SIGNALED;
  request.bind_info.mr = length ? mr : NULL;
  request.bind_info.addr = length ? (uintptr_t)in : 0;
  request.bind_info.length = length;
  request.bind_info.exp_mw_access_flags = IBV_EXP_ACCESS_REMOTE_WRITE;
  check(ibv_exp_bind_mw(&request), "ibv_exp_bind_mw");
  wc = next_completion();
  expect(wc.status == IBV_WC_SUCCESS && wc.exp_opcode == IBV_EXP_WC_BIND_MW,
         "the window was not bound");
}

static void window(void) {
  struct ibv_mr *mr = reg(in, size, IBV_EXP_ACCESS_MW_BIND);
  struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
  uint32_t granted;

  if (!mw) die("ibv_alloc_mw");
  create_pair(0);
  bind(mw, mr, size);
  granted = mw->rkey;
  fill(1);
  expect(transfer(IBV_EXP_WR_RDMA_WRITE, (uintptr_t)out, size, out_mr->lkey, (uintptr_t)in,
                  granted) == IBV_WC_SUCCESS,
         "the window grants nothing");
  expect(!memcmp(out, in, size), "bytes differ behind the window");
  bind(mw, mr, 0);
  expect(transfer(IBV_EXP_WR_RDMA_WRITE, (uintptr_t)out, 8, out_mr->lkey, (uintptr_t)in, granted) ==
             IBV_WC_REM_ACCESS_ERR,
         "the window is still open");
  destroy_pair();
  check(ibv_dealloc_mw(mw), "ibv_dealloc_mw");
  check(ibv_dereg_mr(mr), "ibv_dereg_mr");
  printf("window granted and revoked\n");
}

static void device_memory(void) {
  struct ibv_exp_device_attr device = {0};
  struct ibv_exp_alloc_dm_attr alloc = {0};
  struct ibv_exp_memcpy_dm_attr copy = {0};
  struct ibv_exp_reg_mr_in request = {0};
  struct ibv_exp_dm *dm;
  struct ibv_mr *mr;

  device.comp_mask = IBV_EXP_DEVICE_ATTR_MAX_DM_SIZE;
  check(ibv_exp_query_device(context, &device), "ibv_exp_query_device");
  if (!(device.comp_mask & IBV_EXP_DEVICE_ATTR_MAX_DM_SIZE)) {
    printf("no memory on this device\n");
    return;
  }
  alloc.length = size;
  dm = ibv_exp_alloc_dm(context, &alloc);
  if (!dm) die("ibv_exp_alloc_dm");
  request.pd = pd;
  request.length = size;
  request.exp_access = IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_REMOTE_WRITE;
  request.comp_mask = IBV_EXP_REG_MR_DM;
  request.dm = dm;
  mr = ibv_exp_reg_mr(&request);
  if (!mr) die("ibv_exp_reg_mr of device memory");

  create_pair(0);
  fill(2);
  /* Addresses begin at 0. */
  expect(transfer(IBV_EXP_WR_RDMA_WRITE, (uintptr_t)out, size, out_mr->lkey, 0, mr->rkey) ==
             IBV_WC_SUCCESS,
         "nothing was written to the device");
  memset(in, 0, size);
  copy.memcpy_dir = IBV_EXP_DM_CPY_TO_HOST;
  copy.host_addr = in;
  copy.length = size;
  check(ibv_exp_memcpy_dm(dm, &copy), "ibv_exp_memcpy_dm");
  expect(!memcmp(out, in, size), "bytes differ on the device");
  destroy_pair();
  check(ibv_dereg_mr(mr), "ibv_dereg_mr");
  check(ibv_exp_free_dm(dm), "ibv_exp_free_dm");
  printf("device memory written by RDMA and copied back\n");
}

static void on_demand(void) {
  struct ibv_exp_prefetch_attr hint = {0};
  struct ibv_mr *mr;
  char *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

  if (pages == MAP_FAILED) die("mmap");
  mr = reg(pages, size, IBV_EXP_ACCESS_ON_DEMAND);
  hint.flags = IBV_EXP_PREFETCH_WRITE_ACCESS;
  hint.addr = pages;
  hint.length = size;
  check(ibv_exp_prefetch_mr(mr, &hint), "ibv_exp_prefetch_mr");
  create_pair(0);
  fill(3);
  expect(transfer(IBV_EXP_WR_RDMA_WRITE, (uintptr_t)out, size, out_mr->lkey, (uintptr_t)pages,
                  mr->rkey) == IBV_WC_SUCCESS,
         "nothing was written");
  expect(!memcmp(out, pages, size), "bytes differ on demand");
  destroy_pair();
  check(ibv_dereg_mr(mr), "ibv_dereg_mr");
  munmap(pages, size);
  /* A hint: the pages of other regions are there already. */
  hint.addr = out;
  check(ibv_exp_prefetch_mr(out_mr, &hint), "ibv_exp_prefetch_mr of a pinned region");
  printf("pages on demand prefetched and written\n");
}

static void contiguous(void) {
  struct ibv_mr *mr = reg(NULL, size, IBV_EXP_ACCESS_ALLOCATE_MR);

  expect(mr->addr && (uintptr_t)mr->addr % 4096 == 0, "no memory was allocated");
  create_pair(0);
  fill(4);
  expect(transfer(IBV_EXP_WR_RDMA_WRITE, (uintptr_t)out, size, out_mr->lkey, (uintptr_t)mr->addr,
                  mr->rkey) == IBV_WC_SUCCESS,
         "nothing was written");
  expect(!memcmp(out, mr->addr, size), "bytes differ in allocated memory");
  destroy_pair();
  check(ibv_dereg_mr(mr), "ibv_dereg_mr");
  printf("allocated memory written and freed\n");
}

int main(int argc, char **argv) {
  start(argc, argv);
  out_mr = reg(out, size, 0);
  window();
  device_memory();
  on_demand();
  contiguous();
  check(ibv_dereg_mr(out_mr), "ibv_dereg_mr");
  stop();
  printf("all bytes verified\n");
  return 0;
}
