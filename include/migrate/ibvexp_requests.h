/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queue pairs and work requests of programs that `ibvexp migrate` moved to
 * rdma-core, where ibv_send_wr is not enough: the dynamically connected transport,
 * keys that requests fill. Everything goes through ibv_wr_*.
 *
 * Stands alone, as ibvexp_migrate.h does; linked with -lmlx5. Errors are NULL with
 * errno set, or a positive errno value.
 */
#ifndef IBVEXP_REQUESTS_H
#define IBVEXP_REQUESTS_H

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
enum { IBVEXP_UMR_MOST = 64 }; /* pieces of one request */

/* Beside the opcodes of rdma-core. */
#define IBVEXP_WR_UMR_FILL ((enum ibv_wr_opcode)0x100)
#define IBVEXP_WR_UMR_INVALIDATE ((enum ibv_wr_opcode)0x101)

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

/* 0, EINVAL, or EOPNOTSUPP for what rdma-core has no request for. */
static inline int ibvexp_build_umr(struct ibv_qp_ex *qp, enum ibv_wr_opcode opcode,
				   const struct ibvexp_umr *umr)
{
	struct mlx5dv_mkey *key = ((struct ibvexp_key *)umr->modified_mr)->mkey;
	struct mlx5dv_qp_ex *dv = mlx5dv_qp_ex_from_ibv_qp_ex(qp);
	uint32_t i;

	if (opcode == IBVEXP_WR_UMR_INVALIDATE) {
		ibv_wr_local_inv(qp, key->rkey);
		return 0;
	}
	if (umr->num_mrs < 1 || umr->num_mrs > IBVEXP_UMR_MOST)
		return EINVAL;
	if (umr->umr_type == IBVEXP_UMR_MR_LIST) {
		struct ibv_sge pieces[IBVEXP_UMR_MOST];
		const struct ibvexp_mem_region *from = umr->mem_list.mem_reg_list;

		if (umr->base_addr != from[0].base_addr)
			return EOPNOTSUPP;
		for (i = 0; i < umr->num_mrs; ++i) {
			pieces[i].addr = from[i].base_addr;
			pieces[i].length = (uint32_t)from[i].length;
			pieces[i].lkey = from[i].mr->lkey;
		}
		mlx5dv_wr_mr_list(dv, key, umr->access, (uint16_t)umr->num_mrs, pieces);
	} else {
		struct mlx5dv_mr_interleaved blocks[IBVEXP_UMR_MOST];
		const struct ibvexp_mem_repeat_block *from =
			umr->mem_list.rb.mem_repeat_block_list;

		if (umr->mem_list.rb.stride_dim != 1 || umr->base_addr != from[0].base_addr)
			return EOPNOTSUPP;
		for (i = 0; i < umr->num_mrs; ++i) {
			blocks[i].addr = from[i].base_addr;
			blocks[i].bytes_count = (uint32_t)from[i].byte_count[0];
			blocks[i].bytes_skip = (uint32_t)(from[i].stride[0] - from[i].byte_count[0]);
			blocks[i].lkey = from[i].mr->lkey;
		}
		mlx5dv_wr_mr_interleaved(dv, key, umr->access,
					 (uint32_t)umr->mem_list.rb.repeat_count[0],
					 (uint16_t)umr->num_mrs, blocks);
	}
	return 0;
}

/* Queue pairs and requests with more than ibv_send_wr has */

/* In create_flags, beside IBV_QP_CREATE_*: requests will fill keys. */
enum { IBVEXP_QP_CREATE_UMR = 1 << 30 };

/* Creates a queue pair for ibvexp_post_send(). Of type IBV_QPT_DRIVER: a DC initiator. */
static inline struct ibv_qp *ibvexp_create_qp(struct ibv_context *context,
					      struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp_init_attr_ex init = *attr;
	struct mlx5dv_qp_init_attr dv;
	struct ibv_qp *qp;

	memset(&dv, 0, sizeof(dv));
	init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	if ((init.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) &&
	    (init.create_flags & IBVEXP_QP_CREATE_UMR)) {
		init.create_flags &= ~(uint32_t)IBVEXP_QP_CREATE_UMR;
		dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
		dv.send_ops_flags = MLX5DV_QP_EX_WITH_MR_LIST | MLX5DV_QP_EX_WITH_MR_INTERLEAVED;
	}
	init.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
	switch (init.qp_type) {
	case IBV_QPT_DRIVER:
		dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DC;
		dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
		/* It receives nothing; programs filled that part in nevertheless. */
		init.srq = NULL;
		init.cap.max_recv_wr = init.cap.max_recv_sge = 0;
		if (!init.recv_cq)
			init.recv_cq = init.send_cq;
		/* fall through */
	case IBV_QPT_RC:
	case IBV_QPT_XRC_SEND:
		init.send_ops_flags |= IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
				       IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
				       IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_LOCAL_INV;
		/* fall through */
	case IBV_QPT_UC:
		init.send_ops_flags |=
			IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
		break;
	default:
		break;
	}
	qp = dv.comp_mask ? mlx5dv_create_qp(context, &init, &dv)
			  : ibv_create_qp_ex(context, &init);
	if (qp)
		attr->cap = init.cap;
	return qp;
}

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
		struct ibvexp_umr umr;
	} ext_op;
};

/* 0, or EINVAL for an opcode that is not for this queue pair. */
static inline int ibvexp_build(struct ibv_qp_ex *qp, const struct ibvexp_send_wr *wr)
{
	qp->wr_id = wr->wr_id;
	qp->wr_flags = wr->send_flags;
	if (wr->opcode == IBVEXP_WR_UMR_FILL || wr->opcode == IBVEXP_WR_UMR_INVALIDATE)
		return ibvexp_build_umr(qp, wr->opcode, &wr->ext_op.umr);
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
	switch (qp->qp_base.qp_type) {
	case IBV_QPT_DRIVER:
		mlx5dv_wr_set_dc_addr(mlx5dv_qp_ex_from_ibv_qp_ex(qp), wr->dc.ah,
				      wr->dc.dct_number, wr->dc.dct_access_key);
		break;
	case IBV_QPT_UD:
		ibv_wr_set_ud_addr(qp, wr->wr.ud.ah, wr->wr.ud.remote_qpn,
				   wr->wr.ud.remote_qkey);
		break;
	case IBV_QPT_XRC_SEND:
		ibv_wr_set_xrc_srqn(qp, wr->xrc_remote_srq_num);
		break;
	default:
		break;
	}
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

/*
 * Posts a chain on a queue pair by ibvexp_create_qp(). Each request by itself: those
 * in front of a bad one are posted, and *bad is that one.
 *
 * The program has to keep count of its requests: on a full queue this answers ENOMEM
 * as it should, but libmlx5's builders write into the request before, which the
 * device may not have read yet.
 */
static inline int ibvexp_post_send(struct ibv_qp *qp, struct ibvexp_send_wr *wr,
				   struct ibvexp_send_wr **bad)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	int error = ex ? 0 : EINVAL;

	for (; wr; wr = wr->next) {
		if (!error) {
			ibv_wr_start(ex);
			error = ibvexp_build(ex, wr);
			if (error)
				ibv_wr_abort(ex);
			else
				error = ibv_wr_complete(ex);
		}
		if (error) {
			*bad = wr;
			return error;
		}
	}
	return 0;
}

#ifdef __cplusplus
}
#endif

#endif
