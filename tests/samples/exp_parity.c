/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Four blocks of data and two of parity, as storage of the legacy era kept them: the blocks are
 * encoded, two of them are lost, and come back from the other four.
 *
 *   exp_parity [-g GID]
 */
#include "loopback.h"

enum { k = 4, m = 2, block = 4096 };

static uint8_t blocks[(k + m) * block], before[sizeof(blocks)];

/* Parity 0 is the sum of all blocks, in parity 1 each counts with another factor. */
static uint8_t encode[k * m] = {1, 1, 1, 2, 1, 4, 1, 8};

/* Of the lost blocks 1 and 3, from the blocks 0 and 2 and the parities, in GF(16). */
static uint8_t lost[k + m] = {0, 1, 0, 1, 0, 0};
static uint8_t decode[k * 2];

static uint8_t times(uint8_t a, uint8_t b) {
  uint8_t product = 0;

  for (; b; b >>= 1, a = (uint8_t)(a & 8 ? (a << 1 ^ 0x13) : a << 1))
    if (b & 1) product ^= a;
  return product;
}

/* d1 + d3 = p0 + d0 + d2 and 2 d1 + 8 d3 = p1 + d0 + 4 d2, solved for d1 and d3. */
static void solve(void) {
  static const uint8_t first[k] = {1, 1, 1, 0}, second[k] = {1, 4, 0, 1};
  uint8_t by = 1;
  int i;

  while (times(by, 10) != 1) by++; /* 2 + 8 */
  for (i = 0; i < k; i++) {
    decode[i * 2] = times(by, second[i] ^ times(8, first[i]));
    decode[i * 2 + 1] = times(by, second[i] ^ times(2, first[i]));
  }
}

int main(int argc, char **argv) {
  struct ibv_exp_ec_calc_init_attr attr = {0};
  struct ibv_exp_ec_mem mem = {0};
  struct ibv_exp_ec_calc *calc;
  struct ibv_sge pieces[k + m];
  struct ibv_mr *mr;
  int i;

  start(argc, argv);
  mr = reg(blocks, sizeof(blocks), 0);
  for (i = 0; i < k * block; i++) blocks[i] = (uint8_t)(i * 31 + i / block);
  for (i = 0; i < k + m; i++) {
    pieces[i].addr = (uintptr_t)(blocks + i * block);
    pieces[i].length = block;
    pieces[i].lkey = mr->lkey;
  }
  mem.data_blocks = pieces;
  mem.num_data_sge = k;
  mem.code_blocks = pieces + k;
  mem.num_code_sge = m;
  mem.block_size = block;

  attr.comp_mask = IBV_EXP_EC_CALC_ATTR_MAX_INFLIGHT | IBV_EXP_EC_CALC_ATTR_K |
                   IBV_EXP_EC_CALC_ATTR_M | IBV_EXP_EC_CALC_ATTR_W |
                   IBV_EXP_EC_CALC_ATTR_MAX_DATA_SGE | IBV_EXP_EC_CALC_ATTR_MAX_CODE_SGE |
                   IBV_EXP_EC_CALC_ATTR_ENCODE_MAT;
  attr.max_inflight_calcs = 1;
  attr.k = k;
  attr.m = m;
  attr.w = 4;
  attr.max_data_sge = k;
  attr.max_code_sge = m;
  attr.encode_matrix = encode;
  calc = ibv_exp_alloc_ec_calc(pd, &attr);
  if (!calc) die("ibv_exp_alloc_ec_calc");

  check(ibv_exp_ec_encode_sync(calc, &mem), "ibv_exp_ec_encode_sync");
  for (i = 0; i < block; i++)
    expect(blocks[k * block + i] ==
               (blocks[i] ^ blocks[block + i] ^ blocks[2 * block + i] ^ blocks[3 * block + i]),
           "the first parity is no sum");
  memcpy(before, blocks, sizeof(blocks));
  memset(blocks + block, 0, block);
  memset(blocks + 3 * block, 0, block);
  solve();
  check(ibv_exp_ec_decode_sync(calc, &mem, lost, decode), "ibv_exp_ec_decode_sync");
  expect(!memcmp(before, blocks, sizeof(blocks)), "lost blocks are not back");

  ibv_exp_dealloc_ec_calc(calc);
  check(ibv_dereg_mr(mr), "ibv_dereg_mr");
  stop();
  printf("all bytes verified: %d blocks lost and found\n", m);
  return 0;
}
