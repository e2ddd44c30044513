/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A region of memory that two processes share, as Open MPI's sshmem component for MLNX_OFED
 * did: the first allocates it with its region and sends the region's handle to the second, which
 * registers it, too. What the device writes for one of them, both see.
 *
 *   exp_shared [-g GID]
 */
#include <sys/wait.h>
#include <unistd.h>

#include "loopback.h"

enum { length = 100000 };

static uint8_t outgoing[length];

/* Through the table, as the headers up to 4.2 did; later ones answer by themselves. */
static struct ibv_mr *attach(uint32_t handle) {
  struct ibv_exp_reg_shared_mr_in in = {0};

  in.mr_handle = handle;
  in.pd = pd;
  in.exp_access = IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_REMOTE_WRITE;
#ifdef IBVEXP_EXTERN_CALLS
  return ibv_exp_reg_shared_mr(&in);
#else
  return verbs_get_exp_ctx_op(context, lib_exp_ibv_reg_shared_mr)->lib_exp_ibv_reg_shared_mr(&in);
#endif
}

static void tell(int to, uint32_t number) {
  if (write(to, &number, sizeof(number)) != sizeof(number)) die("write");
}

static uint32_t hear(int from) {
  uint32_t number;

  if (read(from, &number, sizeof(number)) != sizeof(number)) die("read");
  return number;
}

static int own(int from, int to) {
  struct ibv_exp_reg_mr_in in = {0};
  struct ibv_mr *mr;
  const uint8_t *bytes;
  int i;

  in.pd = pd;
  in.length = length;
  in.exp_access = IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_ALLOCATE_MR |
                  IBV_EXP_ACCESS_SHARED_MR_USER_READ | IBV_EXP_ACCESS_SHARED_MR_USER_WRITE;
  mr = ibv_exp_reg_mr(&in);
  if (!mr) die("ibv_exp_reg_mr");
  tell(to, mr->handle);
  hear(from);
  bytes = mr->addr;
  for (i = 0; i < length; i++) expect(bytes[i] == (uint8_t)(i * 7), "the owner misses bytes");
  check(ibv_dereg_mr(mr), "ibv_dereg_mr");
  stop();
  return 0;
}

int main(int argc, char **argv) {
  int there[2], back[2], status, i;
  struct ibv_mr *from, *shared;
  uint8_t *bytes;
  pid_t owner;

  if (pipe(there) || pipe(back)) die("pipe");
  owner = fork();
  if (owner < 0) die("fork");
  start(argc, argv);
  if (!owner) return own(there[0], back[1]);

  shared = attach(hear(back[0]));
  if (!shared) die("ibv_exp_reg_shared_mr");
  expect(shared->length == length, "the region has another length");
  create_pair(0);
  for (i = 0; i < length; i++) outgoing[i] = (uint8_t)(i * 7);
  from = reg(outgoing, sizeof(outgoing), 0);
  expect(transfer(IBV_EXP_WR_RDMA_WRITE, (uintptr_t)outgoing, length, from->lkey,
                  (uintptr_t)shared->addr, shared->rkey) == IBV_WC_SUCCESS,
         "the write failed");
  bytes = shared->addr;
  expect(bytes[length - 1] == (uint8_t)((length - 1) * 7), "the data is not there");
  tell(there[1], 0);
  if (waitpid(owner, &status, 0) != owner || status != 0) die("the owner");

  destroy_pair();
  check(ibv_dereg_mr(shared), "ibv_dereg_mr");
  check(ibv_dereg_mr(from), "ibv_dereg_mr");
  stop();
  printf("all bytes verified\n");
  return 0;
}
