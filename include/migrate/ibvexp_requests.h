/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queue pairs and work requests of programs that `ibvexp migrate` moved to
 * rdma-core, where ibv_send_wr is not enough: the dynamically connected transport,
 * keys that requests fill, masked atomic operations.
 *
 * Stands alone, as ibvexp_migrate.h does; linked with -lmlx5. Errors are NULL with
 * errno set, or a positive errno value.
 */
#ifndef IBVEXP_REQUESTS_H
#define IBVEXP_REQUESTS_H

#include <endian.h>
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Dynamically connected transport */

struct ibvexp_dct_init_attr {
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	uint64_t dc_key;
	uint8_t port;
	uint32_t access_flags;
	uint8_t min_rnr_timer;
	uint8_t tclass;
	uint32_t flow_label;
	enum ibv_mtu mtu;
	uint8_t pkey_index;
	uint8_t gid_index;
	uint8_t hop_limit;
};

/* Creates a target and makes it ready; its number is qp_num. */
static inline struct ibv_qp *ibvexp_create_dct(struct ibv_context *context,
					       const struct ibvexp_dct_init_attr *attr)
{
	struct ibv_qp_init_attr_ex init;
	struct mlx5dv_qp_init_attr dv;
	struct ibv_port_attr port;
	struct ibv_qp_attr to;
	struct ibv_qp *dct;
	int error = ibv_query_port(context, attr->port, &port);

	if (error) {
		errno = error;
		return NULL;
	}
	memset(&init, 0, sizeof(init));
	init.qp_context = (void *)(uintptr_t)attr->dc_key; /* for ibvexp_query_dct() */
	init.qp_type = IBV_QPT_DRIVER;
	init.send_cq = init.recv_cq = attr->cq;
	init.srq = attr->srq;
	init.comp_mask = IBV_QP_INIT_ATTR_PD;
	init.pd = attr->pd;
	memset(&dv, 0, sizeof(dv));
	dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
	dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
	dv.dc_init_attr.dct_access_key = attr->dc_key;
	dct = mlx5dv_create_qp(context, &init, &dv);
	if (!dct)
		return NULL;

	memset(&to, 0, sizeof(to));
	to.qp_state = IBV_QPS_INIT;
	to.pkey_index = attr->pkey_index;
	to.port_num = attr->port;
	to.qp_access_flags = attr->access_flags;
	error = ibv_modify_qp(dct, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						IBV_QP_ACCESS_FLAGS);
	if (!error) {
		to.qp_state = IBV_QPS_RTR;
		to.path_mtu = attr->mtu;
		to.min_rnr_timer = attr->min_rnr_timer;
		to.ah_attr.port_num = attr->port;
		to.ah_attr.is_global = port.link_layer == IBV_LINK_LAYER_ETHERNET ||
				       attr->gid_index < port.gid_tbl_len;
		to.ah_attr.grh.traffic_class = attr->tclass;
		to.ah_attr.grh.flow_label = attr->flow_label;
		to.ah_attr.grh.hop_limit = attr->hop_limit;
		to.ah_attr.grh.sgid_index = to.ah_attr.is_global ? attr->gid_index : 0;
		error = ibv_modify_qp(dct, &to, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
							IBV_QP_MIN_RNR_TIMER);
	}
	if (error) {
		ibv_destroy_qp(dct);
		errno = error;
		return NULL;
	}
	return dct;
}

struct ibvexp_dct_attr {
	uint8_t port;
	uint32_t access_flags;
	uint8_t min_rnr_timer;
	uint8_t tclass;
	uint32_t flow_label;
	enum ibv_mtu mtu;
	uint8_t pkey_index;
	uint8_t gid_index;
	uint8_t hop_limit;
	uint8_t state;
	uint64_t dc_key;
};

enum { IBVEXP_DCT_ACTIVE, IBVEXP_DCT_DRAINING, IBVEXP_DCT_DRAINED };

static inline int ibvexp_query_dct(struct ibv_qp *dct, struct ibvexp_dct_attr *attr)
{
	struct ibv_qp_init_attr unused;
	struct ibv_qp_attr now;
	int error;

	memset(&now, 0, sizeof(now));
	error = ibv_query_qp(dct, &now, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						IBV_QP_ACCESS_FLAGS | IBV_QP_AV | IBV_QP_PATH_MTU |
						IBV_QP_MIN_RNR_TIMER, &unused);
	if (error)
		return error;
	memset(attr, 0, sizeof(*attr));
	attr->port = now.port_num;
	attr->access_flags = now.qp_access_flags;
	attr->min_rnr_timer = now.min_rnr_timer;
	attr->tclass = now.ah_attr.grh.traffic_class;
	attr->flow_label = now.ah_attr.grh.flow_label;
	attr->mtu = now.path_mtu;
	attr->pkey_index = (uint8_t)now.pkey_index;
	attr->gid_index = now.ah_attr.grh.sgid_index;
	attr->hop_limit = now.ah_attr.grh.hop_limit;
	attr->state = now.qp_state == IBV_QPS_RTR ? IBVEXP_DCT_ACTIVE : IBVEXP_DCT_DRAINED;
	attr->dc_key = (uintptr_t)dct->qp_context;
	return 0;
}

/* Keys that requests fill */

/*
 * A key in the shape of a memory region, for lists of both. Give it back by
 * ibvexp_dereg_mr(), which takes real regions, too.
 */
struct ibvexp_key {
	struct ibv_mr mr; /* without context */
	struct mlx5dv_mkey *mkey;
};

struct ibvexp_create_mr_in {
	struct ibv_pd *pd;
	struct {
		uint32_t max_entries;
		uint32_t create_flags; /* MLX5DV_MKEY_INIT_ATTR_FLAGS_* */
		uint64_t access; /* the request says what the key allows */
	} attr;
};

static inline struct ibv_mr *ibvexp_create_mr(const struct ibvexp_create_mr_in *in)
{
	struct mlx5dv_mkey_init_attr init;
	struct ibvexp_key *key = (struct ibvexp_key *)calloc(1, sizeof(*key));

	if (!key)
		return NULL;
	memset(&init, 0, sizeof(init));
	init.pd = in->pd;
	init.create_flags = in->attr.create_flags;
	init.max_entries = (uint16_t)in->attr.max_entries;
	key->mkey = mlx5dv_create_mkey(&init);
	if (!key->mkey) {
		free(key);
		return NULL;
	}
	key->mr.pd = in->pd;
	key->mr.lkey = key->mkey->lkey;
	key->mr.rkey = key->mkey->rkey;
	return &key->mr;
}

static inline int ibvexp_dereg_mr(struct ibv_mr *mr)
{
	struct ibvexp_key *key = (struct ibvexp_key *)mr;
	int error;

	if (mr->context)
		return ibv_dereg_mr(mr);
	error = mlx5dv_destroy_mkey(key->mkey);
	if (!error)
		free(key);
	return error;
}

struct ibvexp_mem_region {
	uint64_t base_addr;
	struct ibv_mr *mr;
	size_t length;
};

struct ibvexp_mem_repeat_block {
	uint64_t base_addr;
	struct ibv_mr *mr;
	size_t *byte_count;
	size_t *stride;
};

enum ibvexp_umr_type { IBVEXP_UMR_MR_LIST, IBVEXP_UMR_REPEAT };
enum { IBVEXP_UMR_MOST = 52 }; /* pieces of one request; the device reads no longer ones */

/* Beside the opcodes of rdma-core. */
#define IBVEXP_WR_UMR_FILL ((enum ibv_wr_opcode)0x100)
#define IBVEXP_WR_UMR_INVALIDATE ((enum ibv_wr_opcode)0x101)
#define IBVEXP_WR_MASKED_ATOMIC_CMP_AND_SWP ((enum ibv_wr_opcode)0x102)
#define IBVEXP_WR_MASKED_ATOMIC_FETCH_AND_ADD ((enum ibv_wr_opcode)0x103)
#define IBVEXP_WR_NOP ((enum ibv_wr_opcode)0x104)

struct ibvexp_umr {
	enum ibvexp_umr_type umr_type;
	uint32_t access;
	struct ibv_mr *modified_mr;
	uint64_t base_addr; /* rdma-core knows no other than that of the first piece */
	uint32_t num_mrs;
	union {
		struct ibvexp_mem_region *mem_reg_list;
		struct {
			struct ibvexp_mem_repeat_block *mem_repeat_block_list;
			size_t *repeat_count;
			uint32_t stride_dim;
		} rb;
	} mem_list;
};

/* Entries that libmlx5 takes whole (mlx5dv_wr_raw_wqe); their completions are IBV_WC_DRIVER2 */

union ibvexp_entry {
	struct mlx5_wqe_ctrl_seg control;
	uint64_t words[128]; /* more than a device reads */
};

static inline uint8_t *ibvexp_begin_entry(union ibvexp_entry *entry, uint32_t opcode,
					  unsigned int flags, __be32 imm)
{
	memset(entry, 0, sizeof(*entry));
	entry->control.opmod_idx_opcode = htobe32(opcode);
	entry->control.imm = imm;
	entry->control.fm_ce_se =
		(uint8_t)((flags & IBV_SEND_SIGNALED ? MLX5_WQE_CTRL_CQ_UPDATE : 0) |
			  (flags & IBV_SEND_SOLICITED ? MLX5_WQE_CTRL_SOLICITED : 0) |
			  (flags & IBV_SEND_FENCE ? MLX5_WQE_CTRL_FENCE : 0));
	return (uint8_t *)(&entry->control + 1);
}

static inline void ibvexp_post_entry(struct ibv_qp_ex *qp, union ibvexp_entry *entry,
				     const uint8_t *end)
{
	entry->control.qpn_ds = htobe32(qp->qp_base.qp_num << 8 |
					(uint32_t)(end - (const uint8_t *)entry) / 16);
	mlx5dv_wr_raw_wqe(mlx5dv_qp_ex_from_ibv_qp_ex(qp), entry);
}

static inline int ibvexp_build_nop(struct ibv_qp_ex *qp, unsigned int flags)
{
	union ibvexp_entry entry;

	ibvexp_post_entry(qp, &entry, ibvexp_begin_entry(&entry, MLX5_OPCODE_NOP, flags, 0));
	return 0;
}

static inline uint8_t ibvexp_key_rights(uint32_t access)
{
	return (uint8_t)(MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_READ |
			 (access & IBV_ACCESS_LOCAL_WRITE
				  ? MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_WRITE : 0) |
			 (access & IBV_ACCESS_REMOTE_WRITE
				  ? MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE : 0) |
			 (access & IBV_ACCESS_REMOTE_READ
				  ? MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ : 0) |
			 (access & IBV_ACCESS_REMOTE_ATOMIC
				  ? MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC : 0));
}

/* The pieces, as the device reads them. Returns the bytes that the key shows; 0 for none. */
static inline uint64_t ibvexp_put_list(uint8_t *at, const struct ibvexp_umr *umr)
{
	uint64_t length = 0;
	uint32_t i;

	for (i = 0; i < umr->num_mrs; ++i) {
		const struct ibvexp_mem_region *from = &umr->mem_list.mem_reg_list[i];
		struct mlx5_wqe_umr_klm_seg piece;

		if (from->length > UINT64_C(1) << 31)
			return 0;
		if (!from->length)
			continue;
		piece.byte_count = htobe32((uint32_t)(from->length & 0x7fffffff));
		piece.mkey = htobe32(from->mr->lkey);
		piece.address = htobe64(from->base_addr);
		memcpy(at, &piece, sizeof(piece));
		at += sizeof(piece);
		length += from->length;
	}
	return length;
}

static inline uint64_t ibvexp_put_pattern(uint8_t *at, const struct ibvexp_umr *umr)
{
	const size_t count = umr->mem_list.rb.repeat_count[0];
	struct mlx5_wqe_umr_repeat_block_seg head;
	uint64_t cycle = 0;
	uint32_t i;

	for (i = 0; i < umr->num_mrs; ++i) {
		const struct ibvexp_mem_repeat_block *from =
			&umr->mem_list.rb.mem_repeat_block_list[i];
		struct mlx5_wqe_umr_repeat_ent_seg block;

		if (from->byte_count[0] - 1 > 0xfffe || from->stride[0] > 0xffff)
			return 0;
		block.stride = htobe16((uint16_t)from->stride[0]);
		block.byte_count = htobe16((uint16_t)from->byte_count[0]);
		block.memkey = htobe32(from->mr->lkey);
		block.va = htobe64(from->base_addr);
		memcpy(at + 16 * (i + 1), &block, sizeof(block));
		cycle += from->byte_count[0];
	}
	if (count - 1 > UINT32_MAX - 1)
		return 0;
	memset(&head, 0, sizeof(head));
	head.byte_count = htobe32((uint32_t)cycle);
	head.op = htobe32(0x400);
	head.repeat_count = htobe32((uint32_t)count);
	head.num_ent = htobe16((uint16_t)umr->num_mrs);
	memcpy(at, &head, sizeof(head));
	return cycle * count;
}

/*
 * Not by mlx5dv_wr_mr_list(), whose keys begin at address 0. 0 or EINVAL; EOPNOTSUPP for
 * patterns of more than one dimension.
 */
static inline int ibvexp_build_umr(struct ibv_qp_ex *qp, enum ibv_wr_opcode opcode,
				   unsigned int flags, const struct ibvexp_umr *umr)
{
	const uint32_t key = ((struct ibvexp_key *)umr->modified_mr)->mkey->lkey;
	const int fill = opcode == IBVEXP_WR_UMR_FILL;
	union ibvexp_entry entry;
	uint8_t *at = ibvexp_begin_entry(&entry, MLX5_OPCODE_UMR, flags, htobe32(key));
	struct mlx5_wqe_umr_ctrl_seg *change = (struct mlx5_wqe_umr_ctrl_seg *)at;
	struct mlx5_wqe_mkey_context_seg *context = (struct mlx5_wqe_mkey_context_seg *)(change + 1);
	uint32_t units;
	uint64_t length;

	at = (uint8_t *)(context + 1);
	change->flags = MLX5_WQE_UMR_CTRL_FLAG_INLINE;
	change->mkey_mask = htobe64(MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE);
	context->qpn_mkey = htobe32(0xffffff00 | (key & 0xff));
	if (!fill) {
		context->free = MLX5_WQE_MKEY_CONTEXT_FREE;
		ibvexp_post_entry(qp, &entry, at);
		return 0;
	}
	units = umr->num_mrs + (umr->umr_type == IBVEXP_UMR_REPEAT);
	if (umr->num_mrs < 1 || units > IBVEXP_UMR_MOST)
		return EINVAL;
	if (umr->umr_type == IBVEXP_UMR_REPEAT && umr->mem_list.rb.stride_dim != 1)
		return EOPNOTSUPP;
	length = umr->umr_type == IBVEXP_UMR_REPEAT ? ibvexp_put_pattern(at, umr)
						    : ibvexp_put_list(at, umr);
	if (!length)
		return EINVAL;
	units = (units + 3) & ~3u;
	change->klm_octowords = htobe16((uint16_t)units);
	change->mkey_mask |= htobe64(
		MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN | MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR |
		UINT64_C(1) << 17 /* local read */ |
		MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE |
		MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ |
		MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE |
		MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC);
	context->access_flags = ibvexp_key_rights(umr->access);
	context->start_addr = htobe64(umr->base_addr);
	context->len = htobe64(length);
	ibvexp_post_entry(qp, &entry, at + 16 * units);
	return 0;
}

/*
 * Queue pairs that fill keys: after such a request, the next one waits until the key has
 * changed. A queue pair that is gone leaves its place to the next one.
 */
struct ibvexp_filler {
	struct ibv_qp *qp;
	struct ibvexp_filler *next;
	int fence;
};
__attribute__((weak)) struct ibvexp_filler *ibvexp_fillers;

static inline struct ibvexp_filler *ibvexp_find_filler(const struct ibv_qp *qp)
{
	struct ibvexp_filler *at = __atomic_load_n(&ibvexp_fillers, __ATOMIC_ACQUIRE);

	while (at && at->qp != qp)
		at = at->next;
	return at;
}

static inline int ibvexp_add_filler(struct ibv_qp *qp)
{
	struct ibvexp_filler *it = ibvexp_find_filler(qp);

	if (it) {
		it->fence = 0;
		return 0;
	}
	it = (struct ibvexp_filler *)calloc(1, sizeof(*it));
	if (!it)
		return ENOMEM;
	it->qp = qp;
	it->next = __atomic_load_n(&ibvexp_fillers, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&ibvexp_fillers, &it->next, it, 0, __ATOMIC_RELEASE,
					    __ATOMIC_RELAXED))
		;
	return 0;
}

/* Queue pairs and requests with more than ibv_send_wr has */

/* In create_flags, beside IBV_QP_CREATE_*: requests will fill keys. */
enum { IBVEXP_QP_CREATE_UMR = 1 << 30 };

/*
 * Room for a request of that many pieces. libmlx5 counts bytes of inline data, and 196
 * beside them, of which such a request has 128. Call it when attr->cap is set.
 */
static inline void ibvexp_set_umr_pieces(struct ibv_qp_init_attr_ex *attr, uint32_t pieces)
{
	const uint32_t most = IBVEXP_UMR_MOST, units = pieces < most ? pieces + 1 : most;
	const uint32_t bytes = 16 * ((units + 3) & ~3u) + 128;

	if (bytes > 196 && attr->cap.max_inline_data < bytes - 196)
		attr->cap.max_inline_data = bytes - 196;
}

static inline uint64_t ibvexp_operations(enum ibv_qp_type type)
{
	const uint64_t sends = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
	const uint64_t writes = sends | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;

	switch (type) {
	case IBV_QPT_DRIVER:
	case IBV_QPT_RC:
	case IBV_QPT_XRC_SEND:
		return writes | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
		       IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_INV |
		       IBV_QP_EX_WITH_LOCAL_INV;
	case IBV_QPT_UC:
		return writes;
	case IBV_QPT_UD:
		return sends;
	default:
		return 0;
	}
}

/* raw: requests will be entries without builder. */
static inline struct ibv_qp *ibvexp_make_qp(struct ibv_context *context,
					    struct ibv_qp_init_attr_ex *attr, int raw)
{
	struct ibv_qp_init_attr_ex init = *attr;
	struct mlx5dv_qp_init_attr dv;
	struct ibv_qp *qp;
	int fills = 0, error;

	memset(&dv, 0, sizeof(dv));
	init.send_ops_flags = ibvexp_operations(init.qp_type);
	if (init.send_ops_flags)
		init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	if ((init.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) &&
	    (init.create_flags & IBVEXP_QP_CREATE_UMR)) {
		init.create_flags &= ~(uint32_t)IBVEXP_QP_CREATE_UMR;
		ibvexp_set_umr_pieces(&init, 4);
		fills = 1;
	}
	if ((raw || fills) && (init.qp_type == IBV_QPT_RC || init.qp_type == IBV_QPT_DRIVER)) {
		/* Binding a window is the one operation that takes as much room. */
		init.send_ops_flags |= IBV_QP_EX_WITH_BIND_MW;
		dv.send_ops_flags |= MLX5DV_QP_EX_WITH_RAW_WQE;
		if (init.qp_type == IBV_QPT_RC) {
			/* libmlx5 does not know where such an answer goes. */
			dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
			dv.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE;
		}
	}
	if (dv.send_ops_flags)
		dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
	if (init.qp_type == IBV_QPT_DRIVER) {
		dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DC;
		dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
		if (!init.recv_cq)
			init.recv_cq = init.send_cq;
	}
	if (init.qp_type == IBV_QPT_DRIVER || init.qp_type == IBV_QPT_XRC_SEND) {
		/* These receive nothing; programs filled that part in nevertheless. */
		init.srq = NULL;
		init.cap.max_recv_wr = init.cap.max_recv_sge = 0;
	}
	qp = dv.comp_mask ? mlx5dv_create_qp(context, &init, &dv)
			  : ibv_create_qp_ex(context, &init);
	if (!qp)
		return NULL;
	error = fills ? ibvexp_add_filler(qp) : 0;
	if (error) {
		ibv_destroy_qp(qp);
		errno = error;
		return NULL;
	}
	attr->cap = init.cap;
	return qp;
}

/* Creates a queue pair for ibvexp_post_send(). Of type IBV_QPT_DRIVER: a DC initiator. */
static inline struct ibv_qp *ibvexp_create_qp(struct ibv_context *context,
					      struct ibv_qp_init_attr_ex *attr)
{
	return ibvexp_make_qp(context, attr, 0);
}

/*
 * The same, for masked atomic operations and IBVEXP_WR_NOP as well, on reliable
 * connections and DC initiators (rdma-core 36 and newer).
 */
static inline struct ibv_qp *ibvexp_create_raw_qp(struct ibv_context *context,
						  struct ibv_qp_init_attr_ex *attr)
{
	return ibvexp_make_qp(context, attr, 1);
}

/* Operands of up to 8 bytes are values; of 16 and 32 bytes, their addresses. */
struct ibvexp_masked_atomics {
	uint32_t log_arg_sz; /* 2 to 5: 4 to 32 bytes */
	uint64_t remote_addr;
	uint32_t rkey;
	struct {
		struct {
			union {
				struct {
					uint64_t compare_mask, compare_val, swap_val, swap_mask;
				} cmp_swap;
				struct {
					uint64_t add_val, field_boundary;
				} fetch_add;
			} op;
		} inline_data;
	} wr_data;
};

struct ibvexp_send_wr {
	uint64_t wr_id;
	struct ibvexp_send_wr *next;
	struct ibv_sge *sg_list;
	int num_sge;
	enum ibv_wr_opcode opcode;
	unsigned int send_flags;
	union {
		__be32 imm_data;
		uint32_t invalidate_rkey;
	} ex;
	union {
		struct {
			uint64_t remote_addr;
			uint32_t rkey;
		} rdma;
		struct {
			uint64_t remote_addr;
			uint64_t compare_add;
			uint64_t swap;
			uint32_t rkey;
		} atomic;
		struct {
			struct ibv_ah *ah;
			uint32_t remote_qpn;
			uint32_t remote_qkey;
		} ud;
	} wr;
	uint32_t xrc_remote_srq_num;
	/* of DC initiators */
	struct {
		struct ibv_ah *ah;
		uint64_t dct_access_key;
		uint32_t dct_number;
	} dc;
	struct {
		struct ibv_mw *mw;
		uint32_t rkey;
		struct ibv_mw_bind_info bind_info;
	} bind_mw;
	struct {
		void *hdr;
		uint16_t hdr_sz;
		uint16_t mss;
	} tso;
	struct {
		struct ibvexp_umr umr;
		struct ibvexp_masked_atomics masked_atomics;
	} ext_op;
};

/*
 * Whether the send queue takes no more. The builders of libmlx5 find that out, but
 * write into a request before nevertheless. ibv_post_send() looks before it writes:
 * it answers ENOMEM on a full queue, and EINVAL to what only raw packets do on others.
 */
static inline int ibvexp_is_full(struct ibv_qp *qp)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge piece;

	memset(&wr, 0, sizeof(wr));
	memset(&piece, 0, sizeof(piece));
	piece.length = 1;
	wr.opcode = IBV_WR_TSO;
	wr.sg_list = &piece;
	wr.num_sge = 1;
	return ibv_post_send(qp, &wr, &bad) == ENOMEM;
}

/* What rdma-core's own request can express. */
static inline int ibvexp_post_plain(struct ibv_qp *qp, const struct ibvexp_send_wr *from)
{
	struct ibv_send_wr wr, *bad;

	memset(&wr, 0, sizeof(wr));
	wr.wr_id = from->wr_id;
	wr.sg_list = from->sg_list;
	wr.num_sge = from->num_sge;
	wr.opcode = from->opcode;
	wr.send_flags = from->send_flags;
	wr.imm_data = from->ex.imm_data;
	switch (from->opcode) {
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		wr.wr.atomic.remote_addr = from->wr.atomic.remote_addr;
		wr.wr.atomic.compare_add = from->wr.atomic.compare_add;
		wr.wr.atomic.swap = from->wr.atomic.swap;
		wr.wr.atomic.rkey = from->wr.atomic.rkey;
		break;
	case IBV_WR_BIND_MW:
		wr.bind_mw.mw = from->bind_mw.mw;
		wr.bind_mw.rkey = from->bind_mw.rkey;
		wr.bind_mw.bind_info = from->bind_mw.bind_info;
		break;
	case IBV_WR_TSO:
		wr.tso.hdr = from->tso.hdr;
		wr.tso.hdr_sz = from->tso.hdr_sz;
		wr.tso.mss = from->tso.mss;
		break;
	default:
		if (qp->qp_type == IBV_QPT_UD) {
			wr.wr.ud.ah = from->wr.ud.ah;
			wr.wr.ud.remote_qpn = from->wr.ud.remote_qpn;
			wr.wr.ud.remote_qkey = from->wr.ud.remote_qkey;
		} else {
			wr.wr.rdma.remote_addr = from->wr.rdma.remote_addr;
			wr.wr.rdma.rkey = from->wr.rdma.rkey;
		}
		break;
	}
	if (qp->qp_type == IBV_QPT_XRC_SEND)
		wr.qp_type.xrc.remote_srqn = from->xrc_remote_srq_num;
	return ibv_post_send(qp, &wr, &bad);
}

/* A request of a DC initiator: 0, or EINVAL for an opcode that is not for one. */
static inline int ibvexp_build_dc(struct ibv_qp_ex *qp, const struct ibvexp_send_wr *wr)
{
	switch (wr->opcode) {
	case IBV_WR_SEND:
		ibv_wr_send(qp);
		break;
	case IBV_WR_SEND_WITH_IMM:
		ibv_wr_send_imm(qp, wr->ex.imm_data);
		break;
	case IBV_WR_SEND_WITH_INV:
		ibv_wr_send_inv(qp, wr->ex.invalidate_rkey);
		break;
	case IBV_WR_RDMA_WRITE:
		ibv_wr_rdma_write(qp, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		ibv_wr_rdma_write_imm(qp, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr,
				      wr->ex.imm_data);
		break;
	case IBV_WR_RDMA_READ:
		ibv_wr_rdma_read(qp, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		ibv_wr_atomic_cmp_swp(qp, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr,
				      wr->wr.atomic.compare_add, wr->wr.atomic.swap);
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		ibv_wr_atomic_fetch_add(qp, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr,
					wr->wr.atomic.compare_add);
		break;
	case IBV_WR_LOCAL_INV:
		ibv_wr_local_inv(qp, wr->ex.invalidate_rkey);
		return 0;
	default:
		return EINVAL;
	}
	mlx5dv_wr_set_dc_addr(mlx5dv_qp_ex_from_ibv_qp_ex(qp), wr->dc.ah, wr->dc.dct_number,
			      wr->dc.dct_access_key);
	if (!(wr->send_flags & IBV_SEND_INLINE)) {
		ibv_wr_set_sge_list(qp, (size_t)wr->num_sge, wr->sg_list);
	} else if (wr->num_sge == 1) {
		ibv_wr_set_inline_data(qp, (void *)(uintptr_t)wr->sg_list[0].addr,
				       wr->sg_list[0].length);
	} else {
		struct ibv_data_buf pieces[64];
		int i;

		if (wr->num_sge < 0 || wr->num_sge > 64)
			return EINVAL;
		for (i = 0; i < wr->num_sge; ++i) {
			pieces[i].addr = (void *)(uintptr_t)wr->sg_list[i].addr;
			pieces[i].length = wr->sg_list[i].length;
		}
		ibv_wr_set_inline_data_list(qp, (size_t)wr->num_sge, pieces);
	}
	return 0;
}

/* An operand, as the device reads it: big-endian. Returns where the next one goes. */
static inline uint8_t *ibvexp_put_operand(uint8_t *to, uint64_t held, uint32_t bytes)
{
	const uint8_t *from = bytes <= sizeof(held) ? (const uint8_t *)&held
						    : (const uint8_t *)(uintptr_t)held;

	while (bytes > 0)
		*to++ = from[--bytes];
	return to;
}

/* A masked atomic operation. 0 or EINVAL. */
static inline int ibvexp_build_masked(struct ibv_qp_ex *qp, const struct ibvexp_send_wr *wr)
{
	const struct ibvexp_masked_atomics *atomic = &wr->ext_op.masked_atomics;
	const int swap = wr->opcode == IBVEXP_WR_MASKED_ATOMIC_CMP_AND_SWP;
	const uint32_t bytes = 1u << (atomic->log_arg_sz & 7), operands = bytes * (swap ? 4 : 2);
	uint32_t left = bytes;
	union ibvexp_entry entry;
	struct mlx5_wqe_raddr_seg *remote;
	struct mlx5_wqe_data_seg *data;
	uint8_t *at;
	int i;

	if (atomic->log_arg_sz < 2 || atomic->log_arg_sz > 5 || wr->num_sge < 0 || wr->num_sge > 16)
		return EINVAL;
	at = ibvexp_begin_entry(&entry,
				(8 | (atomic->log_arg_sz - 2)) << 24 |
					(uint32_t)(swap ? MLX5_OPCODE_ATOMIC_MASKED_CS
							: MLX5_OPCODE_ATOMIC_MASKED_FA),
				wr->send_flags, 0);
	if (qp->qp_base.qp_type == IBV_QPT_DRIVER) {
		struct mlx5_wqe_av *address = (struct mlx5_wqe_av *)at;
		struct mlx5dv_obj object;
		struct mlx5dv_ah ah;

		memset(&object, 0, sizeof(object));
		memset(&ah, 0, sizeof(ah));
		object.ah.in = wr->dc.ah;
		object.ah.out = &ah;
		if (mlx5dv_init_obj(&object, MLX5DV_OBJ_AH))
			return EINVAL;
		*address = *ah.av;
		address->key.dc_key = htobe64(wr->dc.dct_access_key);
		address->dqp_dct = htobe32(wr->dc.dct_number | MLX5_EXTENDED_UD_AV);
		at += sizeof(*address);
	}
	remote = (struct mlx5_wqe_raddr_seg *)at;
	remote->raddr = htobe64(atomic->remote_addr);
	remote->rkey = htobe32(atomic->rkey);
	at += sizeof(*remote);
	data = (struct mlx5_wqe_data_seg *)(at + ((operands + 15) & ~15u));
	if (swap) {
		at = ibvexp_put_operand(at, atomic->wr_data.inline_data.op.cmp_swap.swap_val, bytes);
		at = ibvexp_put_operand(at, atomic->wr_data.inline_data.op.cmp_swap.compare_val, bytes);
		at = ibvexp_put_operand(at, atomic->wr_data.inline_data.op.cmp_swap.swap_mask, bytes);
		ibvexp_put_operand(at, atomic->wr_data.inline_data.op.cmp_swap.compare_mask, bytes);
	} else {
		at = ibvexp_put_operand(at, atomic->wr_data.inline_data.op.fetch_add.add_val, bytes);
		ibvexp_put_operand(at, atomic->wr_data.inline_data.op.fetch_add.field_boundary, bytes);
	}
	/* The answer, no longer than the operand. */
	for (i = 0; i < wr->num_sge && left; ++i) {
		const struct ibv_sge *piece = &wr->sg_list[i];
		const uint32_t length = piece->length < left ? piece->length : left;

		if (!length)
			continue;
		mlx5dv_set_data_seg(data++, length, piece->lkey, piece->addr);
		left -= length;
	}
	ibvexp_post_entry(qp, &entry, (const uint8_t *)data);
	return 0;
}

/* flags: those of the request, and what the one before asks for. */
static inline int ibvexp_post_one(struct ibv_qp *qp, const struct ibvexp_send_wr *from,
				  unsigned int flags)
{
	const int umr = from->opcode == IBVEXP_WR_UMR_FILL ||
			from->opcode == IBVEXP_WR_UMR_INVALIDATE;
	const int masked = from->opcode == IBVEXP_WR_MASKED_ATOMIC_CMP_AND_SWP ||
			   from->opcode == IBVEXP_WR_MASKED_ATOMIC_FETCH_AND_ADD;
	const int nop = from->opcode == IBVEXP_WR_NOP;
	struct ibvexp_send_wr wr = *from;
	struct ibv_qp_ex *ex;
	int error;

	wr.send_flags = flags;
	if (!umr && !masked && !nop && qp->qp_type != IBV_QPT_DRIVER)
		return ibvexp_post_plain(qp, &wr);
	if (qp->qp_type != IBV_QPT_RC && qp->qp_type != IBV_QPT_DRIVER)
		return EINVAL;
	ex = ibv_qp_to_qp_ex(qp);
	if (!ex || (umr && !ibvexp_find_filler(qp)))
		return EINVAL;
	/* Without builders: not by ibvexp_create_qp(), or by an rdma-core before 36. */
	if ((umr || masked || nop) && !mlx5dv_qp_ex_from_ibv_qp_ex(ex)->wr_raw_wqe)
		return EOPNOTSUPP;
	if (!umr && !masked && !nop && !mlx5dv_qp_ex_from_ibv_qp_ex(ex)->wr_set_dc_addr)
		return EINVAL;
	if (ibvexp_is_full(qp))
		return ENOMEM;
	ibv_wr_start(ex);
	ex->wr_id = wr.wr_id;
	ex->wr_flags = flags;
	if (umr)
		error = ibvexp_build_umr(ex, wr.opcode, flags, &wr.ext_op.umr);
	else if (masked)
		error = ibvexp_build_masked(ex, &wr);
	else if (nop)
		error = ibvexp_build_nop(ex, flags);
	else
		error = ibvexp_build_dc(ex, &wr);
	if (!error)
		return ibv_wr_complete(ex);
	ibv_wr_abort(ex);
	return error;
}

/*
 * Posts a chain on a queue pair by ibvexp_create_qp(). Each request by itself: those
 * in front of a bad one are posted, and *bad is that one. ENOMEM: the queue is full.
 * Two threads may post on one queue pair only if it cannot become full between them.
 */
static inline int ibvexp_post_send(struct ibv_qp *qp, struct ibvexp_send_wr *wr,
				   struct ibvexp_send_wr **bad)
{
	struct ibvexp_filler *filler = ibvexp_fillers ? ibvexp_find_filler(qp) : NULL;
	int error = 0;

	for (; wr; wr = wr->next) {
		error = ibvexp_post_one(qp, wr,
					wr->send_flags |
						(filler && filler->fence ? IBV_SEND_FENCE : 0));
		if (error) {
			*bad = wr;
			break;
		}
		if (filler)
			filler->fence = wr->opcode == IBVEXP_WR_UMR_FILL ||
					wr->opcode == IBVEXP_WR_UMR_INVALIDATE;
	}
	return error;
}

/* What devices can do beyond ibv_device_attr_ex */

enum { IBVEXP_MP_RQ_WQ_RQ = 1 << 1 }; /* in mp_rq_caps.supported_qps */

struct ibvexp_masked_atomic_caps {
	uint32_t max_fa_bit_boundary;
	uint32_t log_max_atomic_inline;
	uint64_t masked_log_atomic_arg_sizes; /* bit n: operands of 1 << n bytes */
	uint64_t masked_log_atomic_arg_sizes_network_endianness;
};

/* The same operations without masks are the plain ones: of 8 bytes. */
struct ibvexp_ext_atomic_caps {
	uint64_t log_atomic_arg_sizes;
	uint32_t max_fa_bit_boundary;
	uint32_t log_max_atomic_inline;
};

struct ibvexp_device_attr {
	struct ibv_device_attr_ex all;
	int dc_transport; /* DC initiators can be created */
	struct {
		uint32_t max_klm_list_size;
		uint32_t max_send_wqe_inline_klms;
		uint32_t max_umr_recursion_depth;
		uint32_t max_umr_stride_dimension;
	} umr_caps; /* of what the requests above carry */
	struct ibvexp_masked_atomic_caps masked_atomic;
	struct ibvexp_ext_atomic_caps ext_atom;
	struct {
		uint32_t supported_qps; /* IBVEXP_MP_RQ_* */
		uint32_t allowed_shifts; /* 1: two bytes */
		uint8_t min_single_wqe_log_num_of_strides;
		uint8_t max_single_wqe_log_num_of_strides;
		uint8_t min_single_stride_log_num_of_bytes;
		uint8_t max_single_stride_log_num_of_bytes;
	} mp_rq_caps;
	int inline_recv_sz; /* bytes that libmlx5 receives into completions */
};

/* From the device's own list of capabilities; 0 if it cannot be asked. */
static inline uint64_t ibvexp_masked_atomic_sizes(struct ibv_context *context)
{
	const uint32_t query_hca_cap = 0x100, atomics = 3 << 1 | 1, both = 4 | 8, requests = 0x3c;
	__be32 in[4], out[4 + 1024];

	memset(in, 0, sizeof(in));
	memset(out, 0, sizeof(out));
	in[0] = htobe32(query_hca_cap << 16);
	in[1] = htobe32(atomics);
	if (mlx5dv_devx_general_cmd(context, in, sizeof(in), out, sizeof(out)))
		return 0;
	if ((be32toh(out[8]) & both) != both)
		return 0;
	return be32toh(out[9]) & be32toh(out[10]) & requests;
}

/* Whether libmlx5 receives small messages into completions. */
static inline int ibvexp_scatters(void)
{
	const char *value = getenv("MLX5_SCATTER_TO_CQE");

	return !value || strcmp(value, "0") != 0;
}

/* How many bytes a queue pair made with these attributes receives into completions. */
static inline uint32_t ibvexp_inline_recv(const struct ibv_qp_init_attr_ex *attr)
{
	const char *size = getenv("MLX5_CQE_SIZE");

	if (!ibvexp_scatters() || (attr->qp_type != IBV_QPT_RC && attr->qp_type != IBV_QPT_UC))
		return 0;
	return size && strcmp(size, "128") == 0 ? 64 : 32;
}

/* Nothing reports it: creation is the question. */
static inline int ibvexp_has_dc(struct ibv_context *context)
{
	struct ibv_qp_init_attr_ex attr;
	struct ibv_qp *qp = NULL;

	memset(&attr, 0, sizeof(attr));
	attr.qp_type = IBV_QPT_DRIVER;
	attr.comp_mask = IBV_QP_INIT_ATTR_PD;
	attr.pd = ibv_alloc_pd(context);
	attr.send_cq = ibv_create_cq(context, 1, NULL, NULL, 0);
	attr.cap.max_send_wr = attr.cap.max_send_sge = 1;
	if (attr.pd && attr.send_cq)
		qp = ibvexp_create_qp(context, &attr);
	if (qp)
		ibv_destroy_qp(qp);
	if (attr.send_cq)
		ibv_destroy_cq(attr.send_cq);
	if (attr.pd)
		ibv_dealloc_pd(attr.pd);
	return qp != NULL;
}

static inline int ibvexp_query_device(struct ibv_context *context, struct ibvexp_device_attr *attr)
{
	struct mlx5dv_context dv;
	int error;

	memset(attr, 0, sizeof(*attr));
	error = ibv_query_device_ex(context, NULL, &attr->all);
	memset(&dv, 0, sizeof(dv));
	dv.comp_mask = MLX5DV_CONTEXT_MASK_STRIDING_RQ;
	if (error || mlx5dv_query_device(context, &dv))
		return error;
	attr->dc_transport = ibvexp_has_dc(context);
	attr->inline_recv_sz = ibvexp_scatters() ? 64 : 0;
	attr->umr_caps.max_klm_list_size = IBVEXP_UMR_MOST;
	attr->umr_caps.max_send_wqe_inline_klms = IBVEXP_UMR_MOST;
	attr->umr_caps.max_umr_recursion_depth = 4;
	attr->umr_caps.max_umr_stride_dimension = 1;
	attr->masked_atomic.masked_log_atomic_arg_sizes = ibvexp_masked_atomic_sizes(context);
	if (attr->masked_atomic.masked_log_atomic_arg_sizes) {
		attr->masked_atomic.max_fa_bit_boundary = 64;
		attr->masked_atomic.log_max_atomic_inline = 5;
		attr->masked_atomic.masked_log_atomic_arg_sizes_network_endianness =
			attr->masked_atomic.masked_log_atomic_arg_sizes & ~(UINT64_C(1) << 3);
		attr->ext_atom.log_atomic_arg_sizes =
			attr->masked_atomic.masked_log_atomic_arg_sizes & UINT64_C(1) << 3;
		attr->ext_atom.max_fa_bit_boundary = 64;
		attr->ext_atom.log_max_atomic_inline = 5;
	}
	if ((dv.comp_mask & MLX5DV_CONTEXT_MASK_STRIDING_RQ) &&
	    (dv.striding_rq_caps.supported_qpts & (1u << IBV_QPT_RAW_PACKET))) {
		attr->mp_rq_caps.supported_qps = IBVEXP_MP_RQ_WQ_RQ;
		attr->mp_rq_caps.allowed_shifts = 1;
		attr->mp_rq_caps.min_single_wqe_log_num_of_strides =
			(uint8_t)dv.striding_rq_caps.min_single_wqe_log_num_of_strides;
		attr->mp_rq_caps.max_single_wqe_log_num_of_strides =
			(uint8_t)dv.striding_rq_caps.max_single_wqe_log_num_of_strides;
		attr->mp_rq_caps.min_single_stride_log_num_of_bytes =
			(uint8_t)dv.striding_rq_caps.min_single_stride_log_num_of_bytes;
		attr->mp_rq_caps.max_single_stride_log_num_of_bytes =
			(uint8_t)dv.striding_rq_caps.max_single_stride_log_num_of_bytes;
	}
	return 0;
}

#ifdef __cplusplus
}
#endif

#endif
