/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Experimental verbs: erasure coding. A calculation turns k data blocks into
 * m code blocks, or restores lost blocks, with a matrix over a Galois field
 * of w-bit symbols.
 *
 * Every call is ENOTSUP in its error shape unless IBVEXP_BEYOND names
 * erasure_coding. Then the processor calculates (emulated), in the fields of
 * Jerasure: x^4 + x + 1, two symbols in a byte, and x^8 + x^4 + x^3 + x^2 + 1.
 * Keys of memory are not looked at. rdma-core has no successor.
 *
 * Ownership: memory and lists are the caller's, and what an asynchronous call
 * is given must stay until it has reported.
 * Thread safety: all calls may be made from any thread; an engine that is being
 * freed may not be used.
 * Source of what calls do with the switch: public programs of that time
 * (Mellanox EC, MLNX_OFED's examples), and Jerasure for the sums.
 */
#ifndef INFINIBAND_VERBS_EXP_EC_H
#define INFINIBAND_VERBS_EXP_EC_H

#ifndef INFINIBAND_VERBS_EXP_H
#error "include <infiniband/verbs_exp.h>, not its parts"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ibv_exp_ec_calc_init_attr.comp_mask */
enum ibv_exp_ec_calc_attr_comp_mask {
	IBV_EXP_EC_CALC_ATTR_MAX_INFLIGHT  = 1 << 0,
	IBV_EXP_EC_CALC_ATTR_K             = 1 << 1,
	IBV_EXP_EC_CALC_ATTR_M             = 1 << 2,
	IBV_EXP_EC_CALC_ATTR_W             = 1 << 3,
	IBV_EXP_EC_CALC_ATTR_MAX_DATA_SGE  = 1 << 4,
	IBV_EXP_EC_CALC_ATTR_MAX_CODE_SGE  = 1 << 5,
	IBV_EXP_EC_CALC_ATTR_ENCODE_MAT    = 1 << 6,
	IBV_EXP_EC_CALC_ATTR_AFFINITY      = 1 << 7,
	IBV_EXP_EC_CALC_ATTR_POLLING       = 1 << 8,
	IBV_EXP_EC_CALC_INIT_ATTR_RESERVED = 1 << 9,
};

struct ibv_exp_ec_calc_init_attr {
	uint32_t comp_mask; /* IBV_EXP_EC_CALC_ATTR_* */
	uint32_t max_inflight_calcs;
	int k; /* data blocks, 1 or more */
	int m; /* code blocks, 1 or more; with k at most 2^w */
	int w; /* bits of a symbol: 4 or 8 */
	int max_data_sge; /* elements of a data list */
	int max_code_sge; /* elements of a code list */
	uint8_t *encode_matrix; /* k * m bytes, copied: [j * m + i] of data block j in code block i */
	int affinity_hint; /* not used */
	int polling; /* not 0: ibv_exp_ec_poll() reports */
};

enum ibv_exp_ec_status {
	IBV_EXP_EC_CALC_SUCCESS = 0,
	IBV_EXP_EC_CALC_FAIL    = 1, /* never reported */
};

/*
 * How an asynchronous calculation reports: @done is called once, with @status
 * set, by a thread of the library or in ibv_exp_ec_poll(). It may start
 * calculations and may not free the engine.
 */
struct ibv_exp_ec_comp {
	void (*done)(struct ibv_exp_ec_comp *comp);
	enum ibv_exp_ec_status status;
};

struct ibv_exp_ec_calc {
	struct ibv_pd *pd;
};

/*
 * The blocks of a calculation. The pieces of a list, one after another, are as
 * long as its blocks together; their borders need not be those of blocks.
 */
struct ibv_exp_ec_mem {
	struct ibv_sge *data_blocks;
	int num_data_sge; /* 1 to max_data_sge */
	struct ibv_sge *code_blocks;
	int num_code_sge; /* 1 to max_code_sge */
	int block_size; /* bytes, a multiple of 64 */
};

/* Where ibv_exp_ec_encode_send() sends a block: the caller's request, and its queue pair. */
struct ibv_exp_ec_stripe {
	struct ibv_qp *qp;
	struct ibv_send_wr *wr;
};

/*
 * ibv_exp_alloc_ec_calc - set up a calculation engine
 *
 * Free with ibv_exp_dealloc_ec_calc(), before @pd. k, m, w and encode_matrix have
 * to be given; without their bits max_inflight_calcs is 1, max_data_sge k and
 * max_code_sge m.
 *
 * Returns: the engine, or NULL with errno set. ENOSYS: no operation table.
 * EINVAL: comp_mask out of range; with the switch also a value out of range.
 * Rule: legacy inline.
 */
IBVEXP_CALL struct ibv_exp_ec_calc *
ibv_exp_alloc_ec_calc(struct ibv_pd *pd, struct ibv_exp_ec_calc_init_attr *attr);

/*
 * ibv_exp_dealloc_ec_calc - free a calculation engine
 *
 * With the switch: waits until what a thread has under way is reported. What
 * waits for ibv_exp_ec_poll() is not reported any more. errno EINVAL: freed
 * before, or called by a report of its own thread.
 *
 * Returns nothing; sets errno ENOSYS if there is no operation table.
 * Rule: legacy inline.
 */
IBVEXP_CALL void ibv_exp_dealloc_ec_calc(struct ibv_exp_ec_calc *calc);

/*
 * ibv_exp_ec_encode_async - compute code blocks, report through @ec_comp
 *
 * Returns: 0 once started, or a positive errno value. ENOSYS: no operation
 * table (errno is not touched, here and below). EINVAL as
 * ibv_exp_ec_encode_sync(), and without @ec_comp. ENOMEM: max_inflight_calcs
 * are under way, or there is no memory for it.
 * Rule: legacy inline.
 */
IBVEXP_CALL int ibv_exp_ec_encode_async(struct ibv_exp_ec_calc *calc,
					struct ibv_exp_ec_mem *ec_mem,
					struct ibv_exp_ec_comp *ec_comp);

/*
 * ibv_exp_ec_encode_sync - compute code blocks
 *
 * @ec_mem  k data blocks, which are read, and m code blocks, which are written
 *
 * Returns: 0, or a positive errno value. EINVAL: lists or a block size that
 * struct ibv_exp_ec_mem does not allow; nothing is written then.
 * Rule: legacy inline.
 */
IBVEXP_CALL int ibv_exp_ec_encode_sync(struct ibv_exp_ec_calc *calc,
				       struct ibv_exp_ec_mem *ec_mem);

/*
 * ibv_exp_ec_decode_async - restore lost blocks, report through @ec_comp
 *
 * @erasures       byte map of the lost blocks. (Up to MLNX_OFED 3.2 a bitmap
 *                 passed by value stood here.)
 * @decode_matrix  matrix that restores them: of the first k blocks that are left
 *                 the j-th counts in the i-th of n lost ones by [j * n + i].
 *                 Stays the caller's until the report.
 *
 * Returns: 0 once started, or a positive errno value.
 * Rule: legacy inline.
 */
IBVEXP_CALL int ibv_exp_ec_decode_async(struct ibv_exp_ec_calc *calc,
					struct ibv_exp_ec_mem *ec_mem,
					uint8_t *erasures,
					uint8_t *decode_matrix,
					struct ibv_exp_ec_comp *ec_comp);

/*
 * ibv_exp_ec_decode_sync - restore lost blocks
 *
 * Arguments as for ibv_exp_ec_decode_async().
 *
 * Returns: 0, or a positive errno value.
 * Rule: legacy inline.
 */
IBVEXP_CALL int ibv_exp_ec_decode_sync(struct ibv_exp_ec_calc *calc,
				       struct ibv_exp_ec_mem *ec_mem,
				       uint8_t *erasures,
				       uint8_t *decode_matrix);

/*
 * ibv_exp_ec_update_async - update code blocks after changes to data blocks
 *
 * @ec_mem        data list: the n code blocks to update as they were, then of
 *                each changed data block the old and the new one; code list:
 *                where the n new code blocks go
 * @data_updates  k bytes, not 0 for the data blocks that changed
 * @code_updates  m bytes, not 0 for the code blocks to update
 *
 * Returns: 0 once started, or a negative errno value (-ENOSYS: no operation
 * table).
 * Rule: legacy inline.
 */
IBVEXP_CALL int ibv_exp_ec_update_async(struct ibv_exp_ec_calc *calc,
					struct ibv_exp_ec_mem *ec_mem,
					uint8_t *data_updates,
					uint8_t *code_updates,
					struct ibv_exp_ec_comp *ec_comp);

/*
 * ibv_exp_ec_update_sync - update code blocks after changes to data blocks
 *
 * Arguments as for ibv_exp_ec_update_async().
 *
 * Returns: 0, or a negative errno value (-ENOSYS: no operation table).
 * Rule: legacy inline.
 */
IBVEXP_CALL int ibv_exp_ec_update_sync(struct ibv_exp_ec_calc *calc,
				       struct ibv_exp_ec_mem *ec_mem,
				       uint8_t *data_updates,
				       uint8_t *code_updates);

/*
 * ibv_exp_ec_poll - take completions of a polling engine
 *
 * @n  most completions to take; with the switch each is calculated now, and its
 *     report called, by the caller's thread
 *
 * Returns: the number of completions, or a negative errno value. Without an
 * operation table it returns +ENOSYS (38), as the original: not to be
 * distinguished from a count.
 * Rule: legacy inline.
 */
IBVEXP_CALL int ibv_exp_ec_poll(struct ibv_exp_ec_calc *calc, int n);

/*
 * ibv_exp_ec_encode_send - compute code blocks and send all blocks
 *
 * @data_stripes  k of them: where each data block goes
 * @code_stripes  m of them: where each code block goes
 *
 * The requests are posted by ibv_post_send() once all code blocks are there,
 * those of the data first, up to the first that fails.
 *
 * Returns: 0, or a negative errno value (-ENOSYS: no operation table).
 * Rule: legacy inline.
 */
IBVEXP_CALL int ibv_exp_ec_encode_send(struct ibv_exp_ec_calc *calc,
				       struct ibv_exp_ec_mem *ec_mem,
				       struct ibv_exp_ec_stripe *data_stripes,
				       struct ibv_exp_ec_stripe *code_stripes);

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_VERBS_EXP_EC_H */
