/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * RDMA writes without a verb on the way: entries written into the send queue and
 * completions read by hand, with what the inlines of mlx5_hw.h fill in. Verbs create,
 * connect, arm and destroy.
 *
 *   exp_direct [-g GID_INDEX]
 */
#include <infiniband/mlx5_hw.h>

#include "loopback.h"

#define BLOCK 64

enum { size = 4096, writes = 1000 };

static struct ibv_mlx5_qp_info queue;
static struct ibv_mlx5_cq_info completions;
static uint16_t posted;
static uint32_t taken;
static unsigned int bf_offset;

static void barrier(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

/* One entry: control, remote address, pointer. */
static void post_write(const void *from, uint32_t lkey, uint64_t to, uint32_t rkey,
                       uint32_t length) {
  char *entry = (char *)queue.sq.buf + (size_t)(posted & (queue.sq.wqe_cnt - 1)) * BLOCK;
  struct mlx5_wqe_ctrl_seg *control = (struct mlx5_wqe_ctrl_seg *)entry;
  struct mlx5_wqe_raddr_seg *remote = (struct mlx5_wqe_raddr_seg *)(control + 1);
  struct mlx5_wqe_data_seg *data = (struct mlx5_wqe_data_seg *)(remote + 1);
  const uint64_t *words = (const uint64_t *)entry;
  volatile uint64_t *reg;
  unsigned int i;

  memset(entry, 0, BLOCK);
  control->opmod_idx_opcode = htobe32((uint32_t)posted << 8 | MLX5_OPCODE_RDMA_WRITE);
  control->qpn_ds = htobe32(queue.qpn << 8 | 3);
  control->fm_ce_se = MLX5_WQE_CTRL_CQ_UPDATE;
  remote->raddr = htobe64(to);
  remote->rkey = htobe32(rkey);
  data->byte_count = htobe32(length);
  data->lkey = htobe32(lkey);
  data->addr = htobe64((uintptr_t)from);

  ++posted;
  barrier();
  queue.dbrec[MLX5_SND_DBR] = htobe32(posted);
  barrier();
  reg = (volatile uint64_t *)((char *)queue.bf.reg + bf_offset);
  for (i = 0; i < (queue.bf.size ? BLOCK : 8) / 8; ++i) reg[i] = words[i];
  barrier();
  bf_offset ^= queue.bf.size;
}

/* The next completion, once it is there. */
static void take(void) {
  const char *entry = (const char *)completions.buf +
                      (size_t)(taken & (completions.cqe_cnt - 1)) * completions.cqe_size +
                      (completions.cqe_size - sizeof(struct mlx5_cqe64));
  const struct mlx5_cqe64 *cqe = (const struct mlx5_cqe64 *)entry;
  const int owner = (taken & completions.cqe_cnt) != 0;
  uint8_t op_own;

  do op_own = __atomic_load_n(&cqe->op_own, __ATOMIC_ACQUIRE);
  while (op_own >> 4 == MLX5_CQE_INVALID || (op_own & 1) != owner);
  expect(op_own >> 4 == MLX5_CQE_REQ, "a completion in error");
  ++taken;
  barrier();
  completions.dbrec[0] = htobe32(taken & 0xffffff);
}

int main(int argc, char **argv) {
  static char out[size], in[size];
  struct ibv_mr *from, *to;
  int i;

  start(argc, argv);
  create_pair(0);
  expect(ibv_mlx5_exp_get_qp_info(qp, &queue) == 0, "the queue pair has no such layout");
  expect(ibv_mlx5_exp_get_cq_info(cq, &completions) == 0, "the CQ has no such layout");
  from = ibv_reg_mr(pd, out, size, 0);
  to = ibv_reg_mr(pd, in, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  if (!from || !to) die("ibv_reg_mr");
  for (i = 0; i < size; ++i) out[i] = (char)(i * 7);

  for (i = 0; i < writes; ++i) {
    const int at = i * BLOCK % size;
    post_write(out + at, from->lkey, (uintptr_t)(in + at), to->rkey, BLOCK);
    take();
  }
  expect(memcmp(in, out, size) == 0, "wrong bytes");
  ibv_mlx5_exp_update_cq_ci(cq, taken);

  check(ibv_dereg_mr(from), "ibv_dereg_mr");
  check(ibv_dereg_mr(to), "ibv_dereg_mr");
  destroy_pair();
  stop();
  printf("all bytes verified, %d writes by hand\n", writes);
  return 0;
}
