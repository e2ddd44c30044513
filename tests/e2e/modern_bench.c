/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The work that hotpath_bench.py counts instructions of where rdma-core has another
 * interface for what experimental verbs do: DC, changed memory keys, completions with
 * time stamps and compressed ones.
 *
 *     modern_bench native|plain|exp [-g GID_INDEX]
 *
 * native   by builders (ibv_wr_*, mlx5dv_wr_*) and ibv_start_poll(). For what it cannot
 *          read, compressed completions, by ibv_poll_cq() where they are not.
 * plain    the same with ibv_poll_cq(), which does for all but time stamps
 * exp      by the experimental verbs
 */
#include <infiniband/mlx5dv.h>

#include "counting.h"

#define BYTES 128
#define KEY_PIECES 4
#define DC_KEY 0x1122334455667788

static int use_exp, plain;
static struct ibv_mr *local, *remote;
static unsigned char bytes[2][CHAIN * BYTES];
static struct ibv_sge pieces[CHAIN];
static struct ibv_exp_send_wr exp_wr[CHAIN];
static struct ibv_srq *srq;

/* Where completions come from: one that is polled in the usual way, or by ibv_start_poll(). */
static struct ibv_cq *stamped, *packed;
static struct ibv_cq_ex *cq_ex, *stamped_ex;

static struct ibv_qp *initiator, *target, *keys_qp, *stamped_qp[2], *packed_qp[2];
static struct ibv_qp_ex *initiator_ex, *keys_ex;
static struct mlx5dv_qp_ex *initiator_dv, *keys_dv;
static struct ibv_exp_dct *exp_target;
static uint32_t target_number;

static struct mlx5dv_mkey *mkeys[CHAIN];
static struct ibv_mr *exp_keys[CHAIN];
static struct ibv_sge key_pieces[KEY_PIECES];
static struct mlx5dv_mr_interleaved key_blocks[KEY_PIECES];
static struct ibv_exp_mem_region exp_pieces[KEY_PIECES];
static struct ibv_exp_mem_repeat_block exp_blocks[KEY_PIECES];
static size_t block_bytes = 16, block_stride = 32, repetitions = 4;

static const unsigned int key_rights =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

/* Creating */

static struct ibv_qp *make_pair_end(struct ibv_cq *recv_cq) {
  struct ibv_qp_init_attr attr;
  struct ibv_qp *made;

  memset(&attr, 0, sizeof(attr));
  attr.send_cq = cq;
  attr.recv_cq = recv_cq;
  attr.qp_type = IBV_QPT_RC;
  attr.cap.max_send_wr = attr.cap.max_recv_wr = 64;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
  made = ibv_create_qp(pd, &attr);
  if (!made) die("ibv_create_qp");
  return made;
}

static void make_pair(struct ibv_qp *pair[2], struct ibv_cq *recv_cq) {
  pair[0] = make_pair_end(cq);
  pair[1] = make_pair_end(recv_cq);
  ready(pair[0], pair[1]);
  ready(pair[1], pair[0]);
}

static struct ibv_qp *make_modern(enum ibv_qp_type type, struct mlx5dv_qp_init_attr *dv,
                                  uint64_t operations) {
  struct ibv_qp_init_attr_ex attr;
  struct ibv_qp *made;

  memset(&attr, 0, sizeof(attr));
  attr.qp_type = type;
  attr.send_cq = attr.recv_cq = cq;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD;
  attr.pd = pd;
  if (operations) {
    attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.send_ops_flags = operations;
    attr.cap.max_send_wr = 64;
    attr.cap.max_send_sge = 1;
    attr.cap.max_inline_data = KEY_PIECES * 16;
  }
  if (type == IBV_QPT_DRIVER && !operations) attr.srq = srq;
  made = mlx5dv_create_qp(context, &attr, dv);
  if (!made) die("mlx5dv_create_qp");
  return made;
}

static struct ibv_qp *make_exp(enum ibv_qp_type type) {
  struct ibv_exp_qp_init_attr attr = {0};
  struct ibv_qp *made;

  attr.qp_type = type;
  attr.send_cq = attr.recv_cq = cq;
  attr.comp_mask = IBV_EXP_QP_INIT_ATTR_PD;
  attr.pd = pd;
  attr.cap.max_send_wr = 64;
  attr.cap.max_send_sge = 1;
  if (type == IBV_QPT_RC) {
    attr.comp_mask |= IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS | IBV_EXP_QP_INIT_ATTR_MAX_INL_KLMS;
    attr.exp_create_flags = IBV_EXP_QP_CREATE_UMR;
    attr.max_inl_send_klms = KEY_PIECES + 1;
  } else {
    attr.srq = srq;
  }
  made = ibv_exp_create_qp(context, &attr);
  if (!made) die("ibv_exp_create_qp");
  return made;
}

static void create_target(void) {
  struct mlx5dv_qp_init_attr dv = {0};
  struct ibv_exp_dct_init_attr exp_attr = {0};
  struct ibv_qp_attr attr;

  if (use_exp) {
    exp_attr.pd = pd;
    exp_attr.cq = cq;
    exp_attr.srq = srq;
    exp_attr.dc_key = DC_KEY;
    exp_attr.port = 1;
    exp_attr.access_flags = IBV_ACCESS_REMOTE_WRITE;
    exp_attr.min_rnr_timer = 2;
    exp_attr.mtu = IBV_MTU_1024;
    exp_attr.gid_index = gid_index >= 0 ? (uint8_t)gid_index : 255;
    exp_attr.hop_limit = 1;
    exp_target = ibv_exp_create_dct(context, &exp_attr);
    if (!exp_target) die("ibv_exp_create_dct");
    target_number = (uint32_t)exp_target->dct_num;
    return;
  }
  dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
  dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
  dv.dc_init_attr.dct_access_key = DC_KEY;
  target = make_modern(IBV_QPT_DRIVER, &dv, 0);
  memset(&attr, 0, sizeof(attr));
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  check(ibv_modify_qp(target, &attr,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
        "target to INIT");
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.min_rnr_timer = 2;
  attr.ah_attr = path;
  check(ibv_modify_qp(target, &attr,
                      IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_AV | IBV_QP_MIN_RNR_TIMER),
        "target to RTR");
  target_number = target->qp_num;
}

static void ready_initiator(void) {
  struct ibv_exp_qp_attr exp_attr = {0};
  struct ibv_qp_attr attr;

  if (use_exp) {
    exp_attr.qp_state = IBV_QPS_INIT;
    exp_attr.port_num = 1;
    exp_attr.dct_key = DC_KEY;
    check(ibv_exp_modify_qp(
              initiator, &exp_attr,
              IBV_EXP_QP_STATE | IBV_EXP_QP_PKEY_INDEX | IBV_EXP_QP_PORT | IBV_EXP_QP_DC_KEY),
          "initiator to INIT");
    exp_attr.qp_state = IBV_QPS_RTR;
    exp_attr.path_mtu = IBV_MTU_1024;
    exp_attr.ah_attr = path;
    check(ibv_exp_modify_qp(initiator, &exp_attr,
                            IBV_EXP_QP_STATE | IBV_EXP_QP_PATH_MTU | IBV_EXP_QP_AV),
          "initiator to RTR");
    exp_attr.qp_state = IBV_QPS_RTS;
    exp_attr.timeout = 14;
    exp_attr.retry_cnt = exp_attr.rnr_retry = 7;
    exp_attr.max_rd_atomic = 1;
    check(ibv_exp_modify_qp(initiator, &exp_attr,
                            IBV_EXP_QP_STATE | IBV_EXP_QP_TIMEOUT | IBV_EXP_QP_RETRY_CNT |
                                IBV_EXP_QP_RNR_RETRY | IBV_EXP_QP_MAX_QP_RD_ATOMIC),
          "initiator to RTS");
    return;
  }
  memset(&attr, 0, sizeof(attr));
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  check(ibv_modify_qp(initiator, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT),
        "initiator to INIT");
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.ah_attr = path;
  check(ibv_modify_qp(initiator, &attr, IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_AV),
        "initiator to RTR");
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = attr.rnr_retry = 7;
  attr.max_rd_atomic = 1;
  check(ibv_modify_qp(initiator, &attr,
                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                          IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
        "initiator to RTS");
}

static void create_dc(void) {
  struct mlx5dv_qp_init_attr dv = {0};

  create_target();
  if (use_exp) {
    initiator = make_exp((enum ibv_qp_type)IBV_EXP_QPT_DC_INI);
  } else {
    dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
    dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
    initiator = make_modern(IBV_QPT_DRIVER, &dv, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE);
    initiator_ex = ibv_qp_to_qp_ex(initiator);
    initiator_dv = mlx5dv_qp_ex_from_ibv_qp_ex(initiator_ex);
  }
  ready_initiator();
}

static void create_keys(void) {
  struct mlx5dv_qp_init_attr dv = {0};
  struct mlx5dv_mkey_init_attr key_attr = {0};
  struct ibv_exp_create_mr_in exp_attr = {0};
  int i;

  if (use_exp) {
    keys_qp = make_exp(IBV_QPT_RC);
  } else {
    dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
    dv.send_ops_flags = MLX5DV_QP_EX_WITH_MR_LIST | MLX5DV_QP_EX_WITH_MR_INTERLEAVED;
    keys_qp = make_modern(IBV_QPT_RC, &dv, IBV_QP_EX_WITH_RDMA_WRITE);
    keys_ex = ibv_qp_to_qp_ex(keys_qp);
    keys_dv = mlx5dv_qp_ex_from_ibv_qp_ex(keys_ex);
  }
  ready(keys_qp, keys_qp);
  for (i = 0; i < CHAIN; ++i) {
    if (use_exp) {
      exp_attr.pd = pd;
      exp_attr.attr.max_klm_list_size = KEY_PIECES + 1;
      exp_attr.attr.create_flags = IBV_EXP_MR_INDIRECT_KLMS;
      exp_attr.attr.exp_access_flags = key_rights;
      exp_keys[i] = ibv_exp_create_mr(&exp_attr);
      if (!exp_keys[i]) die("ibv_exp_create_mr");
    } else {
      key_attr.pd = pd;
      key_attr.create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT;
      key_attr.max_entries = KEY_PIECES + 1;
      mkeys[i] = mlx5dv_create_mkey(&key_attr);
      if (!mkeys[i]) die("mlx5dv_create_mkey");
    }
  }
  for (i = 0; i < KEY_PIECES; ++i) {
    const uint64_t at = (uintptr_t)(bytes[0] + i * 128);

    key_pieces[i] = (struct ibv_sge){at, 64, local->lkey};
    key_blocks[i] = (struct mlx5dv_mr_interleaved){
        at, (uint32_t)block_bytes, (uint32_t)(block_stride - block_bytes), local->lkey};
    exp_pieces[i] = (struct ibv_exp_mem_region){at, local, 64};
    exp_blocks[i] = (struct ibv_exp_mem_repeat_block){at, local, &block_bytes, &block_stride};
  }
}

static void create_stamped(void) {
  struct ibv_cq_init_attr_ex attr = {0};
  struct ibv_exp_cq_init_attr exp_attr = {0};

  exp_attr.comp_mask = IBV_EXP_CQ_INIT_ATTR_FLAGS;
  if (use_exp) {
    exp_attr.flags = IBV_EXP_CQ_TIMESTAMP;
    stamped = ibv_exp_create_cq(context, 64, NULL, NULL, 0, &exp_attr);
    exp_attr.flags = IBV_EXP_CQ_COMPRESSED_CQE;
    packed = ibv_exp_create_cq(context, 64, NULL, NULL, 0, &exp_attr);
  } else {
    attr.cqe = 64;
    attr.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM |
                    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
    stamped_ex = ibv_create_cq_ex(context, &attr);
    if (stamped_ex) stamped = ibv_cq_ex_to_cq(stamped_ex);
    packed = ibv_create_cq(context, 64, NULL, NULL, 0);
  }
  if (!stamped || !packed) die("completion queues");
  make_pair(stamped_qp, stamped);
  make_pair(packed_qp, packed);
}

/* Posting. Not inlined, for the program's own share to be the inlines' alone. */

static __attribute__((noinline)) int post_exp(struct ibv_qp *on) {
  struct ibv_exp_send_wr *bad;

  return ibv_exp_post_send(on, exp_wr, &bad);
}

static __attribute__((noinline)) int post_dc_native(int count, int write) {
  int i;

  ibv_wr_start(initiator_ex);
  for (i = 0; i < count; ++i) {
    initiator_ex->wr_id = (uint64_t)i;
    initiator_ex->wr_flags = write ? IBV_SEND_SIGNALED : 0;
    if (write) ibv_wr_rdma_write(initiator_ex, remote->rkey, (uintptr_t)bytes[1]);
    else ibv_wr_send(initiator_ex);
    mlx5dv_wr_set_dc_addr(initiator_dv, ah, target_number, DC_KEY);
    ibv_wr_set_sge(initiator_ex, pieces[i].lkey, pieces[i].addr, pieces[i].length);
  }
  return ibv_wr_complete(initiator_ex);
}

static __attribute__((noinline)) int post_keys_native(int count, int pattern) {
  int i;

  ibv_wr_start(keys_ex);
  for (i = 0; i < count; ++i) {
    keys_ex->wr_id = (uint64_t)i;
    keys_ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
    if (pattern)
      mlx5dv_wr_mr_interleaved(keys_dv, mkeys[i], key_rights, (uint32_t)repetitions, KEY_PIECES,
                               key_blocks);
    else mlx5dv_wr_mr_list(keys_dv, mkeys[i], key_rights, KEY_PIECES, key_pieces);
  }
  return ibv_wr_complete(keys_ex);
}

/* Polling */

static __attribute__((noinline)) int poll_exp(struct ibv_cq *on, int count) {
  static struct ibv_exp_wc wc[CHAIN];

  return ibv_exp_poll_cq(on, count, wc, sizeof(wc[0]));
}
static __attribute__((noinline)) int poll_base(struct ibv_cq *on, int count) {
  static struct ibv_wc wc[CHAIN];

  return ibv_poll_cq(on, count, wc);
}
/* What such completions have that mean something. */
static __attribute__((noinline)) int poll_modern(struct ibv_cq_ex *on, int has_stamps, int count) {
  static struct ibv_exp_wc wc[CHAIN];
  struct ibv_poll_cq_attr attr = {0};
  int n = 0;

  if (ibv_start_poll(on, &attr)) return 0;
  do {
    wc[n].wr_id = on->wr_id;
    wc[n].status = on->status;
    wc[n].exp_opcode = (enum ibv_exp_wc_opcode)ibv_wc_read_opcode(on);
    wc[n].qp_num = ibv_wc_read_qp_num(on);
    if (has_stamps) wc[n].timestamp = ibv_wc_read_completion_ts(on);
    wc[n].exp_wc_flags = ibv_wc_read_wc_flags(on);
    if (wc[n].exp_opcode & IBV_WC_RECV) wc[n].byte_len = ibv_wc_read_byte_len(on);
    if (wc[n].exp_wc_flags & IBV_WC_WITH_IMM) wc[n].imm_data = ibv_wc_read_imm_data(on);
  } while (++n < count && !ibv_next_poll(on));
  ibv_end_poll(on);
  return n;
}

static int poll_some(struct ibv_cq *on, int count) {
  if (use_exp) return poll_exp(on, count);
  if (plain) return poll_base(on, count);
  if (on == stamped) return poll_modern(stamped_ex, 1, count);
  return on == cq ? poll_modern(cq_ex, 0, count) : poll_base(on, count);
}

/* As in posting.h. */
static int count_polls(struct ibv_cq *on, const char *name, int count) {
  int n, left;

  for (left = in_a_row(count) * count; left; left -= n) {
    begin();
    n = poll_some(on, count);
    if (n != count) break;
    end("poll", name, count);
  }
  if (!left) return 1;
  give_up();
  expect(n >= 0, "poll");
  for (left -= n; left; left -= n) n = poll_some(on, count);
  return 0;
}

static void drop(struct ibv_cq *on, int count) {
  while (count) count -= poll_some(on, count < CHAIN ? count : CHAIN);
}

/* What is counted */

static void prepare(enum ibv_exp_wr_opcode opcode, uint64_t flags, int count) {
  int i;

  for (i = 0; i < count; ++i) {
    struct ibv_exp_send_wr *wr = &exp_wr[i];

    pieces[i] = (struct ibv_sge){(uintptr_t)(bytes[0] + i * BYTES), 100, local->lkey};
    memset(wr, 0, sizeof(*wr));
    wr->wr_id = (uint64_t)i;
    wr->sg_list = &pieces[i];
    wr->num_sge = 1;
    wr->exp_opcode = opcode;
    wr->exp_send_flags = flags;
    if (opcode == IBV_EXP_WR_RDMA_WRITE) {
      wr->wr.rdma.remote_addr = (uintptr_t)bytes[1];
      wr->wr.rdma.rkey = remote->rkey;
    }
    wr->dc.ah = ah;
    wr->dc.dct_access_key = DC_KEY;
    wr->dc.dct_number = target_number;
    wr->next = i + 1 < count ? &exp_wr[i + 1] : NULL;
  }
}

static void post_receives(struct ibv_qp *to, int count) {
  struct ibv_sge piece = {(uintptr_t)bytes[1], BYTES, remote->lkey};
  struct ibv_recv_wr wr, *bad;

  memset(&wr, 0, sizeof(wr));
  wr.sg_list = &piece;
  wr.num_sge = 1;
  while (count-- > 0)
    check(to ? ibv_post_recv(to, &wr, &bad) : ibv_post_srq_recv(srq, &wr, &bad), "receives");
}

static void count_dc(int count, int write) {
  const char *name = write ? "dc-write" : "dc";
  int error, tries, turn, all = 0;

  for (tries = 0; !all && tries < TRIES; ++tries) {
    if (!write) post_receives(NULL, in_a_row(count) * count);
    prepare(write ? IBV_EXP_WR_RDMA_WRITE : IBV_EXP_WR_SEND, write ? IBV_EXP_SEND_SIGNALED : 0,
            count);
    for (turn = 0; turn < in_a_row(count); ++turn) {
      begin();
      error = use_exp ? post_exp(initiator) : post_dc_native(count, write);
      end("post", name, count);
      check(error, name);
    }
    wait_for_device();
    all = count_polls(cq, name, count);
    if (!write) {
      /* Gives the places of unsignaled requests in the queue back. */
      prepare(IBV_EXP_WR_RDMA_WRITE, IBV_EXP_SEND_SIGNALED, 1);
      check(use_exp ? post_exp(initiator) : post_dc_native(1, 1), name);
      drop(cq, 1);
    }
  }
  expect(all, "the device is too slow");
}

static void count_keys(int count, int pattern) {
  const char *name = pattern ? "pattern" : "key";
  int error, tries, turn, i, all = 0;

  for (tries = 0; !all && tries < TRIES; ++tries) {
    prepare(IBV_EXP_WR_UMR_FILL, IBV_EXP_SEND_SIGNALED | IBV_EXP_SEND_INLINE, count);
    for (i = 0; i < count; ++i) {
      struct ibv_exp_send_wr *wr = &exp_wr[i];

      wr->ext_op.umr.umr_type = pattern ? IBV_EXP_UMR_REPEAT : IBV_EXP_UMR_MR_LIST;
      wr->ext_op.umr.exp_access = key_rights;
      wr->ext_op.umr.modified_mr = exp_keys[i];
      wr->ext_op.umr.num_mrs = KEY_PIECES;
      if (pattern) {
        wr->ext_op.umr.mem_list.rb.mem_repeat_block_list = exp_blocks;
        wr->ext_op.umr.mem_list.rb.repeat_count = &repetitions;
        wr->ext_op.umr.mem_list.rb.stride_dim = 1;
      } else {
        wr->ext_op.umr.mem_list.mem_reg_list = exp_pieces;
      }
    }
    for (turn = 0; turn < in_a_row(count); ++turn) {
      begin();
      error = use_exp ? post_exp(keys_qp) : post_keys_native(count, pattern);
      end("post", name, count);
      check(error, name);
    }
    wait_for_device();
    all = count_polls(cq, name, count);
  }
  expect(all, "the device is too slow");
}

/* The device has compressed that many completions into one session at the front. */
static int is_packed(int count) {
  struct mlx5dv_cq facts = {0};
  struct mlx5dv_obj object = {0};
  struct mlx5_cqe64 *cqe;

  object.cq.in = packed;
  object.cq.out = &facts;
  check(mlx5dv_init_obj(&object, MLX5DV_OBJ_CQ), "mlx5dv_init_obj");
  cqe = (struct mlx5_cqe64 *)((char *)facts.buf +
                              (be32toh(facts.dbrec[0]) & (facts.cqe_cnt - 1)) * facts.cqe_size);
  return (cqe->op_own >> 2 & 3) == 3 && be32toh(cqe->byte_cnt) == (uint32_t)count;
}

static void count_receives(struct ibv_qp *const pair[2], struct ibv_cq *on, const char *name,
                           int count) {
  struct ibv_send_wr wr, *bad;
  int i, tries, turn, all = 0;

  for (tries = 0; !all && tries < TRIES; ++tries) {
    post_receives(pair[1], in_a_row(count) * count);
    prepare(IBV_EXP_WR_SEND, IBV_EXP_SEND_SIGNALED, count);
    if (use_exp) {
      for (turn = 0; turn < in_a_row(count); ++turn) check(post_exp(pair[0]), name);
    } else {
      memset(&wr, 0, sizeof(wr));
      wr.sg_list = pieces;
      wr.num_sge = 1;
      wr.opcode = IBV_WR_SEND;
      wr.send_flags = IBV_SEND_SIGNALED;
      for (i = 0; i < in_a_row(count) * count; ++i) check(ibv_post_send(pair[0], &wr, &bad), name);
    }
    drop(cq, in_a_row(count) * count);
    wait_for_device();
    if (use_exp && on == packed && !is_packed(count)) drop(on, in_a_row(count) * count);
    else all = count_polls(on, name, count);
  }
  expect(all, "the device is too slow");
}

static void create(void) {
  struct ibv_cq_init_attr_ex cq_attr = {0};
  struct ibv_srq_init_attr attr;

  if (use_exp) {
    cq = ibv_create_cq(context, 128, NULL, NULL, 0);
  } else {
    cq_attr.cqe = 128;
    cq_attr.wc_flags = IBV_WC_STANDARD_FLAGS;
    cq_ex = ibv_create_cq_ex(context, &cq_attr);
    if (cq_ex) cq = ibv_cq_ex_to_cq(cq_ex);
  }
  if (!cq) die("completion queue");
  local = ibv_reg_mr(pd, bytes[0], sizeof(bytes[0]), (int)key_rights);
  remote = ibv_reg_mr(pd, bytes[1], sizeof(bytes[1]), (int)key_rights);
  if (!local || !remote) die("ibv_reg_mr");
  memset(&attr, 0, sizeof(attr));
  attr.attr.max_wr = 64;
  attr.attr.max_sge = 1;
  srq = ibv_create_srq(pd, &attr);
  if (!srq) die("ibv_create_srq");
  create_dc();
  create_keys();
  create_stamped();
}

int main(int argc, char **argv) {
  int round, count, turn;

  plain = argc > 1 && !strcmp(argv[1], "plain");
  use_exp = argc > 1 && !strcmp(argv[1], "exp");
  if (argc < 2 || (!plain && !use_exp && strcmp(argv[1], "native"))) {
    fprintf(stderr, "usage: %s native|plain|exp [-g GID_INDEX]\n", argv[0]);
    return 1;
  }
  if (argc == 4 && !strcmp(argv[2], "-g")) gid_index = atoi(argv[3]);
  open_device();
  create();
  for (round = 0; round < ROUNDS; ++round) {
    for (count = 1; count <= CHAIN; count += CHAIN - 1) {
      count_dc(count, 0);
      count_dc(count, 1);
      count_keys(count, 0);
      count_keys(count, 1);
      count_receives(stamped_qp, stamped, "stamped", count);
    }
    count_receives(packed_qp, packed, "packed", CHAIN);
    for (turn = 0; turn < in_a_row(1); ++turn) count_harness();
  }
  return 0;
}
