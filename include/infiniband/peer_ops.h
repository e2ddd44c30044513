/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Experimental verbs: peer-direct. A second processor on the bus (the peer,
 * usually a GPU) rings doorbells and watches completions itself: the library
 * describes what would have to be done as a list of peer_op_wr, the program
 * hands it to the peer. Layouts are those of MLNX_OFED 3.4 and later; 3.3
 * differed.
 */
#ifndef INFINIBAND_PEER_OPS_H
#define INFINIBAND_PEER_OPS_H

#include <infiniband/verbs_exp.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * What the peer shall do. STORE_DWORD was 1 in MLNX_OFED 3.3, with other
 * operands; the value is not used again.
 */
enum ibv_exp_peer_op {
	IBV_EXP_PEER_OP_RESERVED1      = 0x01,
	IBV_EXP_PEER_OP_FENCE          = 0x00,
	IBV_EXP_PEER_OP_STORE_DWORD    = 0x04,
	IBV_EXP_PEER_OP_STORE_QWORD    = 0x02,
	IBV_EXP_PEER_OP_COPY_BLOCK     = 0x03,
	IBV_EXP_PEER_OP_POLL_AND_DWORD = 0x0c,
	IBV_EXP_PEER_OP_POLL_NOR_DWORD = 0x0d,
	IBV_EXP_PEER_OP_POLL_GEQ_DWORD = 0x0e,
};

/* ibv_exp_peer_direct_attr.caps: bit n is operation n. */
enum ibv_exp_peer_op_caps {
	IBV_EXP_PEER_OP_FENCE_CAP          = 1 << IBV_EXP_PEER_OP_FENCE,
	IBV_EXP_PEER_OP_STORE_DWORD_CAP    = 1 << IBV_EXP_PEER_OP_STORE_DWORD,
	IBV_EXP_PEER_OP_STORE_QWORD_CAP    = 1 << IBV_EXP_PEER_OP_STORE_QWORD,
	IBV_EXP_PEER_OP_COPY_BLOCK_CAP     = 1 << IBV_EXP_PEER_OP_COPY_BLOCK,
	IBV_EXP_PEER_OP_POLL_AND_DWORD_CAP = 1 << IBV_EXP_PEER_OP_POLL_AND_DWORD,
	IBV_EXP_PEER_OP_POLL_NOR_DWORD_CAP = 1 << IBV_EXP_PEER_OP_POLL_NOR_DWORD,
	IBV_EXP_PEER_OP_POLL_GEQ_DWORD_CAP = 1 << IBV_EXP_PEER_OP_POLL_GEQ_DWORD,
};

/* peer_op_wr.wr.fence: which accesses, from whom, to what memory. */
enum ibv_exp_peer_fence {
	IBV_EXP_PEER_FENCE_OP_READ  = 1 << 0,
	IBV_EXP_PEER_FENCE_OP_WRITE = 1 << 1,
	IBV_EXP_PEER_FENCE_FROM_CPU = 1 << 2,
	IBV_EXP_PEER_FENCE_FROM_HCA = 1 << 3,
	IBV_EXP_PEER_FENCE_MEM_SYS  = 1 << 4,
	IBV_EXP_PEER_FENCE_MEM_PEER = 1 << 5,
};

/*
 * One operation. target_id is what register_va returned, offset counts bytes
 * from there.
 */
struct peer_op_wr {
	struct peer_op_wr *next;
	enum ibv_exp_peer_op type;
	union {
		struct {
			uint64_t fence_flags; /* IBV_EXP_PEER_FENCE_* */
		} fence;
		struct {
			uint32_t data;
			uint64_t target_id;
			size_t offset;
		} dword_va;
		struct {
			uint64_t data;
			uint64_t target_id;
			size_t offset;
		} qword_va;
		struct {
			void *src;
			uint64_t target_id;
			size_t offset;
			size_t len; /* bytes */
		} copy_op;
	} wr;
	uint32_t comp_mask;
};

/* Who reads and writes a buffer. */
enum ibv_exp_peer_direction {
	IBV_EXP_PEER_DIRECTION_FROM_CPU  = 1 << 0,
	IBV_EXP_PEER_DIRECTION_FROM_HCA  = 1 << 1,
	IBV_EXP_PEER_DIRECTION_FROM_PEER = 1 << 2,
	IBV_EXP_PEER_DIRECTION_TO_CPU    = 1 << 3,
	IBV_EXP_PEER_DIRECTION_TO_HCA    = 1 << 4,
	IBV_EXP_PEER_DIRECTION_TO_PEER   = 1 << 5,
};

/* A request for memory that the peer can reach. */
struct ibv_exp_peer_buf_alloc_attr {
	size_t length; /* bytes */
	uint32_t dir; /* IBV_EXP_PEER_DIRECTION_* */
	uint64_t peer_id; /* ibv_exp_peer_direct_attr.peer_id */
	uint32_t alignment; /* bytes */
	uint32_t comp_mask;
};

/* Such memory. */
struct ibv_exp_peer_buf {
	void *addr;
	size_t length; /* bytes */
	uint32_t comp_mask;
};

/* In place of a buffer in register_va(): memory of the device. */
#define IBV_EXP_PEER_IOMEMORY ((struct ibv_exp_peer_buf *)-1UL)

/* ibv_exp_peer_direct_attr.comp_mask */
enum ibv_exp_peer_direct_attr_mask {
	IBV_EXP_PEER_DIRECT_VERSION = 1 << 0,
};

/*
 * The peer, described by the program when it creates completion queues and
 * queue pairs (IBV_EXP_CQ_INIT_ATTR_PEER_DIRECT,
 * IBV_EXP_QP_INIT_ATTR_PEER_DIRECT). Must stay until the last of them is
 * destroyed: the library calls back.
 */
struct ibv_exp_peer_direct_attr {
	uint64_t peer_id; /* passed to the callbacks */
	/* Allocate and free memory that the peer can reach. */
	struct ibv_exp_peer_buf *(*buf_alloc)(
		struct ibv_exp_peer_buf_alloc_attr *attr);
	int (*buf_release)(struct ibv_exp_peer_buf *pb);
	/* Make memory known to the peer; the result goes into target_id. */
	uint64_t (*register_va)(void *start, size_t length, uint64_t peer_id,
				struct ibv_exp_peer_buf *pb);
	int (*unregister_va)(uint64_t target_id, uint64_t peer_id);
	uint64_t caps; /* IBV_EXP_PEER_OP_*_CAP */
	size_t peer_dma_op_map_len; /* longest copy_op, bytes */
	uint32_t comp_mask; /* IBV_EXP_PEER_DIRECT_VERSION */
	uint32_t version; /* 1 */
};

/* Room for the description of a doorbell. */
struct ibv_exp_peer_commit {
	struct peer_op_wr *storage; /* list with room for the operations */
	uint32_t entries; /* room on input, used on output */
	uint64_t rollback_id; /* output, for ibv_exp_rollback_qp() */
	uint32_t comp_mask;
};

/*
 * ibv_exp_peer_commit_qp - describe the doorbell of what was posted
 *
 * Threads: not concurrently on the same QP, nor with posting to it.
 * Returns: 0; -ENOSPC if storage is too short, -EINVAL. ENOSYS (positive): no
 * operation table.
 * Rule: legacy inline.
 */
IBVEXP_CALL int ibv_exp_peer_commit_qp(struct ibv_qp *qp,
				       struct ibv_exp_peer_commit *peer);

enum ibv_exp_rollback_flags {
	IBV_EXP_ROLLBACK_ABORT_UNCOMMITED = 1 << 0,
	IBV_EXP_ROLLBACK_ABORT_LATE       = 1 << 1,
};

struct ibv_exp_rollback_ctx {
	uint64_t rollback_id; /* from ibv_exp_peer_commit_qp() */
	uint32_t flags; /* IBV_EXP_ROLLBACK_* */
	uint32_t comp_mask;
};

/*
 * ibv_exp_rollback_qp - take back a commit that the peer has not executed
 *
 * Threads: not concurrently on the same QP, nor with posting to it.
 * Returns: 0, or -ERANGE. ENOSYS (positive): no operation table.
 * Rule: legacy inline.
 */
IBVEXP_CALL int ibv_exp_rollback_qp(struct ibv_qp *qp,
				    struct ibv_exp_rollback_ctx *rollback);

/* ibv_exp_peer_peek.whence */
enum {
	IBV_EXP_PEER_PEEK_ABSOLUTE = 0,
	IBV_EXP_PEER_PEEK_RELATIVE = 1,
};

/* Which completion to watch, and room for how. */
struct ibv_exp_peer_peek {
	struct peer_op_wr *storage; /* list with room for the operations */
	uint32_t entries; /* room on input, used on output */
	uint32_t whence; /* IBV_EXP_PEER_PEEK_* */
	uint32_t offset; /* completions */
	uint64_t peek_id; /* output, for ibv_exp_peer_abort_peek_cq() */
	uint32_t comp_mask;
};

/*
 * ibv_exp_peer_peek_cq - describe how to wait for a completion
 *
 * Threads: not concurrently on the same queue.
 * Returns: 0; EINVAL, E2BIG, ENOSPC or ENOMEM, positive. ENOSYS: no operation
 * table.
 * Rule: legacy inline; the original's comment says negative, its code did
 * not.
 */
IBVEXP_CALL int ibv_exp_peer_peek_cq(struct ibv_cq *cq,
				     struct ibv_exp_peer_peek *peek_ctx);

struct ibv_exp_peer_abort_peek {
	uint64_t peek_id; /* from ibv_exp_peer_peek_cq() */
	uint32_t comp_mask;
};

/*
 * ibv_exp_peer_abort_peek_cq - give up waiting for a completion
 *
 * Threads: not concurrently on the same queue.
 * Returns: 0, or EINVAL. ENOSYS: no operation table.
 * Rule: legacy inline.
 */
IBVEXP_CALL int
ibv_exp_peer_abort_peek_cq(struct ibv_cq *cq,
			   struct ibv_exp_peer_abort_peek *abort_ctx);

#ifndef IBVEXP_EXTERN_CALLS

static inline int ibv_exp_peer_commit_qp(struct ibv_qp *qp,
					 struct ibv_exp_peer_commit *peer)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(qp->context, exp_peer_commit_qp);

	if (!table)
		return ENOSYS;
	return table->exp_peer_commit_qp(qp, peer);
}

static inline int ibv_exp_rollback_qp(struct ibv_qp *qp,
				      struct ibv_exp_rollback_ctx *rollback)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(qp->context, exp_rollback_send);

	if (!table)
		return ENOSYS;
	return table->exp_rollback_send(qp, rollback);
}

static inline int ibv_exp_peer_peek_cq(struct ibv_cq *cq,
				       struct ibv_exp_peer_peek *peek_ctx)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(cq->context, exp_peer_peek_cq);

	if (!table)
		return ENOSYS;
	return table->exp_peer_peek_cq(cq, peek_ctx);
}

static inline int
ibv_exp_peer_abort_peek_cq(struct ibv_cq *cq,
			   struct ibv_exp_peer_abort_peek *abort_ctx)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(cq->context, exp_peer_abort_peek_cq);

	if (!table)
		return ENOSYS;
	return table->exp_peer_abort_peek_cq(cq, abort_ctx);
}

#endif /* IBVEXP_EXTERN_CALLS */

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_PEER_OPS_H */
