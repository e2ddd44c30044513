/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Atomic operations on parts of a word, and on more than a word, in the style of
 * programs written for MLNX_OFED: counters that share a word, locks in the bits of
 * one, values of 4 to 32 bytes that are exchanged as a whole. What memory holds and
 * what is answered is verified. Needs IBVEXP_BEYOND=masked_atomics.
 *
 *   exp_atomic [-g GID_INDEX]
 */
#include <endian.h>

#include "loopback.h"

enum { WIDEST = 32 };

static struct {
  _Alignas(WIDEST) unsigned char target[64];
  _Alignas(WIDEST) unsigned char answer[WIDEST];
} memory;
static struct ibv_mr *mr;

/* One masked operation on the target; the answer is there afterwards. */
static void operate(struct ibv_exp_send_wr *wr, uint32_t log_bytes) {
  struct ibv_sge piece = {(uintptr_t)memory.answer, 1u << log_bytes, mr->lkey};
  enum ibv_exp_wc_opcode due = wr->exp_opcode == IBV_EXP_WR_EXT_MASKED_ATOMIC_CMP_AND_SWP
                                   ? IBV_EXP_WC_MASKED_COMP_SWAP
                                   : IBV_EXP_WC_MASKED_FETCH_ADD;
  struct ibv_exp_wc wc;

  wr->wr_id = 7;
  wr->next = NULL;
  wr->sg_list = &piece;
  wr->num_sge = 1;
  wr->exp_send_flags = IBV_EXP_SEND_SIGNALED | IBV_EXP_SEND_EXT_ATOMIC_INLINE;
  wr->ext_op.masked_atomics.log_arg_sz = log_bytes;
  wr->ext_op.masked_atomics.remote_addr = (uintptr_t)memory.target;
  wr->ext_op.masked_atomics.rkey = mr->rkey;
  post(qp, wr);
  wc = next_completion();
  if (wc.status != IBV_WC_SUCCESS) {
    fprintf(stderr, "%s\n", ibv_wc_status_str(wc.status));
    exit(1);
  }
  expect(wc.wr_id == 7 && wc.exp_opcode == due && wc.byte_len == 1u << log_bytes,
         "a completion of something else");
}

/* Operands of up to 8 bytes are values, of more addresses. */
static void swap(uint32_t log_bytes, uint64_t compare, uint64_t compare_mask, uint64_t value,
                 uint64_t mask) {
  struct ibv_exp_send_wr wr;

  memset(&wr, 0x5c, sizeof(wr));
  wr.exp_opcode = IBV_EXP_WR_EXT_MASKED_ATOMIC_CMP_AND_SWP;
  wr.ext_op.masked_atomics.wr_data.inline_data.op.cmp_swap.compare_val = compare;
  wr.ext_op.masked_atomics.wr_data.inline_data.op.cmp_swap.compare_mask = compare_mask;
  wr.ext_op.masked_atomics.wr_data.inline_data.op.cmp_swap.swap_val = value;
  wr.ext_op.masked_atomics.wr_data.inline_data.op.cmp_swap.swap_mask = mask;
  operate(&wr, log_bytes);
}

static void add(uint32_t log_bytes, uint64_t value, uint64_t boundary) {
  struct ibv_exp_send_wr wr;

  memset(&wr, 0x5c, sizeof(wr));
  wr.exp_opcode = IBV_EXP_WR_EXT_MASKED_ATOMIC_FETCH_AND_ADD;
  wr.ext_op.masked_atomics.wr_data.inline_data.op.fetch_add.add_val = value;
  wr.ext_op.masked_atomics.wr_data.inline_data.op.fetch_add.field_boundary = boundary;
  operate(&wr, log_bytes);
}

static uint64_t word(const void *at) {
  uint64_t value;

  memcpy(&value, at, sizeof(value));
  return value;
}

static void set_word(uint64_t value) { memcpy(memory.target, &value, sizeof(value)); }

/* Four counters of 16 bits; each stops its own carry. */
static void count_in_fields(void) {
  const uint64_t boundary = 0x8000800080008000ull;
  uint64_t due = 0;
  int turn, i;

  set_word(0);
  for (turn = 0; turn < 100; ++turn) {
    uint64_t before = due, sum = 0, step = 0;

    for (i = 0; i < 4; ++i) step |= (uint64_t)(uint16_t)(turn * 5003 + i * 9001) << (16 * i);
    for (i = 0; i < 4; ++i)
      sum |= (uint64_t)(uint16_t)((due >> (16 * i)) + (step >> (16 * i))) << (16 * i);
    due = sum;
    add(3, step, boundary);
    expect(word(memory.answer) == before, "counters: the answer");
    expect(word(memory.target) == due, "counters: the sum");
  }
  printf("counters: four in a word, 100 times\n");
}

/* A lock per bit: taken if it was free, whatever the others are. */
static void lock_bits(void) {
  uint64_t held = 0;
  int i;

  set_word(0);
  for (i = 0; i < 200; ++i) {
    uint64_t bit = 1ull << (i * 29 % 64);

    swap(3, 0, bit, bit, bit);
    expect(word(memory.answer) == held, "locks: the answer");
    if (!(held & bit) != !(word(memory.answer) & bit)) expect(0, "locks: who has it");
    held |= bit;
    expect(word(memory.target) == held, "locks: the word");
    if (i % 3 == 0) {
      swap(3, bit, bit, 0, bit);
      held &= ~bit;
      expect(word(memory.target) == held, "locks: given back");
    }
  }
  printf("locks: one per bit of a word, 200 times\n");
}

static void small_and_wide(void) {
  unsigned char old[WIDEST], next[WIDEST], all[WIDEST], none[WIDEST] = {0}, one[WIDEST] = {1};
  uint32_t log_bytes, i;

  memset(all, 0xff, sizeof(all));
  /* 4 bytes; the answer comes in network byte order. */
  set_word(0x1111222233334444ull);
  swap(2, 0x33334444, 0xffffffff, 0x55556666, 0xffffffff);
  expect(word(memory.target) == 0x1111222255556666ull, "4 bytes: the neighbours");
  expect(be32toh((uint32_t)word(memory.answer)) == 0x33334444, "4 bytes: the answer");
  add(2, 0xffffffff, 0);
  expect(word(memory.target) == 0x1111222255556665ull, "4 bytes: the sum");

  for (log_bytes = 4; log_bytes <= 5; ++log_bytes) {
    uint32_t bytes = 1u << log_bytes;

    for (i = 0; i < bytes; ++i) {
      old[i] = memory.target[i] = (unsigned char)(3 * i + 1);
      next[i] = (unsigned char)(5 * i + 100);
    }
    memory.target[bytes] = 0x77;
    swap(log_bytes, (uintptr_t)old, (uintptr_t)all, (uintptr_t)next, (uintptr_t)all);
    expect(!memcmp(memory.target, next, bytes), "wide: the value");
    for (i = 0; i < bytes; ++i) expect(memory.answer[i] == old[bytes - 1 - i], "wide: the answer");
    /* It is another one now. */
    swap(log_bytes, (uintptr_t)old, (uintptr_t)all, (uintptr_t)all, (uintptr_t)all);
    expect(!memcmp(memory.target, next, bytes), "wide: no match");
    /* A carry through all of it. */
    memset(memory.target, 0xff, bytes - 1);
    memory.target[bytes - 1] = 4;
    add(log_bytes, (uintptr_t)one, (uintptr_t)none);
    expect(!memcmp(memory.target, none, bytes - 1) && memory.target[bytes - 1] == 5,
           "wide: the carry");
    expect(memory.target[bytes] == 0x77, "wide: the neighbour");
  }
  printf("values: of 4, 16 and 32 bytes\n");
}

int main(int argc, char **argv) {
  struct ibv_exp_device_attr attr = {.comp_mask = IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS |
                                                  IBV_EXP_DEVICE_ATTR_MASKED_ATOMICS};

  start(argc, argv);
  check(ibv_exp_query_device(context, &attr), "ibv_exp_query_device");
  if (!(attr.exp_device_cap_flags & IBV_EXP_DEVICE_EXT_MASKED_ATOMICS)) {
    printf("the device, or the library, has no masked atomics\n");
    return 77;
  }
  expect((attr.masked_atomic.masked_log_atomic_arg_sizes & 0x3c) == 0x3c, "4 to 32 bytes");
  mr = reg(&memory, sizeof(memory), 0);
  create_pair(0);
  count_in_fields();
  lock_bits();
  small_and_wide();
  printf("all bytes verified\n");
  destroy_pair();
  check(ibv_dereg_mr(mr), "ibv_dereg_mr");
  stop();
  return 0;
}
