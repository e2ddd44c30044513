/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Experimental verbs: erasure coding. A calculation turns k data blocks into
 * m code blocks, or restores lost blocks, with a matrix over a Galois field
 * of w-bit symbols.
 *
 * Whatever an asynchronous call is given must stay until it has reported.
 * rdma-core has no successor; descriptions are as far as the interface itself
 * says.
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
	int k; /* data blocks */
	int m; /* code blocks */
	int w; /* bits of a symbol */
	int max_data_sge; /* elements of a data list */
	int max_code_sge; /* elements of a code list */
	uint8_t *encode_matrix;
	int affinity_hint;
	int polling;
};

enum ibv_exp_ec_status {
	IBV_EXP_EC_CALC_SUCCESS = 0,
	IBV_EXP_EC_CALC_FAIL    = 1,
};

/* How an asynchronous calculation reports. */
struct ibv_exp_ec_comp {
	void (*done)(struct ibv_exp_ec_comp *comp);
	enum ibv_exp_ec_status status;
};

struct ibv_exp_ec_calc {
	struct ibv_pd *pd;
};

/* The blocks of a calculation. */
struct ibv_exp_ec_mem {
	struct ibv_sge *data_blocks;
	int num_data_sge;
	struct ibv_sge *code_blocks;
	int num_code_sge;
	int block_size; /* bytes */
};

/* Where ibv_exp_ec_encode_send() sends a block. */
struct ibv_exp_ec_stripe {
	struct ibv_qp *qp;
	struct ibv_send_wr *wr;
};

/*
 * ibv_exp_alloc_ec_calc - set up a calculation engine
 *
 * Free with ibv_exp_dealloc_ec_calc().
 *
 * Returns: the engine, or NULL with errno set. ENOSYS: no operation table.
 * EINVAL: comp_mask out of range.
 * Rule: legacy inline.
 */
IBVEXP_CALL struct ibv_exp_ec_calc *
ibv_exp_alloc_ec_calc(struct ibv_pd *pd, struct ibv_exp_ec_calc_init_attr *attr);

/*
 * ibv_exp_dealloc_ec_calc - free a calculation engine
 *
 * Returns nothing; sets errno ENOSYS if there is no operation table.
 * Rule: legacy inline.
 */
IBVEXP_CALL void ibv_exp_dealloc_ec_calc(struct ibv_exp_ec_calc *calc);

/*
 * ibv_exp_ec_encode_async - compute code blocks, report through @ec_comp
 *
 * Returns: 0 once started, or a positive errno value. ENOSYS: no operation
 * table (errno is not touched, here and below).
 * Rule: legacy inline.
 */
IBVEXP_CALL int ibv_exp_ec_encode_async(struct ibv_exp_ec_calc *calc,
					struct ibv_exp_ec_mem *ec_mem,
					struct ibv_exp_ec_comp *ec_comp);

/*
 * ibv_exp_ec_encode_sync - compute code blocks
 *
 * Returns: 0, or a positive errno value.
 * Rule: legacy inline.
 */
IBVEXP_CALL int ibv_exp_ec_encode_sync(struct ibv_exp_ec_calc *calc,
				       struct ibv_exp_ec_mem *ec_mem);

/*
 * ibv_exp_ec_decode_async - restore lost blocks, report through @ec_comp
 *
 * @erasures       byte map of the lost blocks. (Up to MLNX_OFED 3.2 a bitmap
 *                 passed by value stood here.)
 * @decode_matrix  matrix that restores them
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
 * @data_updates  byte map of the data blocks that changed
 * @code_updates  byte map of the code blocks to update
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
 * @n  most completions to take
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
 * @data_stripes  where each data block goes
 * @code_stripes  where each code block goes
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
