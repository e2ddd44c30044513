/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * User-mode memory registration as programs for MLNX_OFED use it: keys that show
 * scattered memory as one piece. A list, a matrix that is transposed by one RDMA
 * write, an address of the program's choice, and the end of a key.
 *
 *   exp_umr [-g GID]
 */
#include "loopback.h"

enum { rows = 100, columns = 20 };

static uint32_t matrix[rows][columns], transposed[columns][rows];
static struct ibv_mr *matrix_mr, *transposed_mr;

static struct ibv_mr *create_key(uint32_t pieces) {
  struct ibv_exp_create_mr_in in = {0};
  struct ibv_mr *key;

  in.pd = pd;
  in.attr.max_klm_list_size = pieces;
  in.attr.create_flags = IBV_EXP_MR_INDIRECT_KLMS;
  in.attr.exp_access_flags =
      IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_REMOTE_WRITE | IBV_EXP_ACCESS_REMOTE_READ;
  key = ibv_exp_create_mr(&in);
  if (!key) die("ibv_exp_create_mr");
  return key;
}

static void post_umr(struct ibv_exp_send_wr *wr, enum ibv_exp_wr_opcode opcode,
                     struct ibv_mr *key) {
  struct ibv_exp_wc wc;

  wr->wr_id = 77;
  wr->next = NULL;
  wr->exp_opcode = opcode;
  wr->exp_send_flags = IBV_EXP_SEND_SIGNALED | IBV_EXP_SEND_INLINE;
  wr->ext_op.umr.modified_mr = key;
  post(qp, wr);
  wc = next_completion();
  expect(wc.status == IBV_WC_SUCCESS && wc.wr_id == 77 && wc.exp_opcode == IBV_EXP_WC_UMR,
         "UMR did not complete as such");
}

static void fill_list(struct ibv_mr *key, uint64_t base, struct ibv_exp_mem_region *pieces,
                      uint32_t count) {
  struct ibv_exp_send_wr wr = {0};

  wr.ext_op.umr.umr_type = IBV_EXP_UMR_MR_LIST;
  wr.ext_op.umr.exp_access =
      IBV_EXP_ACCESS_LOCAL_WRITE | IBV_EXP_ACCESS_REMOTE_WRITE | IBV_EXP_ACCESS_REMOTE_READ;
  wr.ext_op.umr.base_addr = base;
  wr.ext_op.umr.num_mrs = count;
  wr.ext_op.umr.mem_list.mem_reg_list = pieces;
  post_umr(&wr, IBV_EXP_WR_UMR_FILL, key);
}

/* One column of the matrix, as if its elements lay side by side. */
static void fill_column(struct ibv_mr *key, int column) {
  struct ibv_exp_mem_repeat_block block;
  struct ibv_exp_send_wr wr = {0};
  size_t bytes = sizeof(matrix[0][0]), stride = sizeof(matrix[0]), count = rows;

  block.base_addr = (uintptr_t)&matrix[0][column];
  block.mr = matrix_mr;
  block.byte_count = &bytes;
  block.stride = &stride;
  wr.ext_op.umr.umr_type = IBV_EXP_UMR_REPEAT;
  wr.ext_op.umr.exp_access = IBV_EXP_ACCESS_LOCAL_WRITE;
  wr.ext_op.umr.num_mrs = 1;
  wr.ext_op.umr.mem_list.rb.mem_repeat_block_list = &block;
  wr.ext_op.umr.mem_list.rb.repeat_count = &count;
  wr.ext_op.umr.mem_list.rb.stride_dim = 1;
  post_umr(&wr, IBV_EXP_WR_UMR_FILL, key);
}

static void transpose(void) {
  struct ibv_exp_mem_region all[columns];
  struct ibv_mr *column[columns], *key = create_key(columns);
  int r, c;

  for (c = 0; c < columns; ++c) {
    column[c] = create_key(2);
    fill_column(column[c], c);
    all[c].base_addr = 0;
    all[c].mr = column[c];
    all[c].length = rows * sizeof(matrix[0][0]);
  }
  fill_list(key, 0, all, columns);
  expect(transfer(IBV_EXP_WR_RDMA_WRITE, 0, sizeof(matrix), key->lkey, (uintptr_t)transposed,
                  transposed_mr->rkey) == IBV_WC_SUCCESS,
         "the matrix was not written");
  for (r = 0; r < rows; ++r)
    for (c = 0; c < columns; ++c)
      expect(transposed[c][r] == matrix[r][c], "an element is out of place");
  check(ibv_dereg_mr(key), "ibv_dereg_mr");
  for (c = 0; c < columns; ++c) check(ibv_dereg_mr(column[c]), "ibv_dereg_mr");
  printf("%d x %d matrix transposed by one RDMA write\n", rows, columns);
}

static void scattered_target(void) {
  struct ibv_exp_mem_region rest[2] = {
      {(uintptr_t)&transposed[5][0], transposed_mr, 40},
      {(uintptr_t)&transposed[1][10], transposed_mr, 20},
  };
  struct ibv_exp_send_wr wr = {0};
  struct ibv_mr *key = create_key(2);
  /* The key is addressed as the first piece is. */
  uint64_t base = (uintptr_t)&transposed[5][0];

  fill_list(key, base, rest, 2);
  expect(transfer(IBV_EXP_WR_RDMA_WRITE, (uintptr_t)matrix, 60, matrix_mr->lkey, base, key->rkey) ==
             IBV_WC_SUCCESS,
         "nothing was written through the key");
  expect(!memcmp(&transposed[5][0], matrix, 40) &&
             !memcmp(&transposed[1][10], (char *)matrix + 40, 20),
         "the pieces differ");

  post_umr(&wr, IBV_EXP_WR_UMR_INVALIDATE, key);
  expect(transfer(IBV_EXP_WR_RDMA_WRITE, (uintptr_t)matrix, 60, matrix_mr->lkey, base, key->rkey) ==
             IBV_WC_REM_ACCESS_ERR,
         "the key survived");
  check(ibv_dereg_mr(key), "ibv_dereg_mr");
  printf("written through a list at its own address, then invalidated\n");
}

int main(int argc, char **argv) {
  struct ibv_exp_device_attr device = {0};
  int r, c;

  start(argc, argv);
  device.comp_mask = IBV_EXP_DEVICE_ATTR_UMR | IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS;
  check(ibv_exp_query_device(context, &device), "ibv_exp_query_device");
  expect((device.exp_device_cap_flags & IBV_EXP_DEVICE_UMR) &&
             device.umr_caps.max_send_wqe_inline_klms >= columns,
         "no UMR");
  create_pair(device.umr_caps.max_send_wqe_inline_klms);
  for (r = 0; r < rows; ++r)
    for (c = 0; c < columns; ++c) matrix[r][c] = (uint32_t)(r * 1000 + c);
  matrix_mr = reg(matrix, sizeof(matrix), 0);
  transposed_mr = reg(transposed, sizeof(transposed), 0);

  transpose();
  scattered_target();

  destroy_pair();
  check(ibv_dereg_mr(matrix_mr), "ibv_dereg_mr");
  check(ibv_dereg_mr(transposed_mr), "ibv_dereg_mr");
  stop();
  printf("all bytes verified\n");
  return 0;
}
