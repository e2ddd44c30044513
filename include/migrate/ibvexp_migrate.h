/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What programs need that `ibvexp migrate` moved from the experimental verbs to
 * rdma-core, where one call of then is several of now. Everything else became
 * calls of rdma-core in the program itself.
 *
 * This file stands alone: it needs rdma-core's headers and nothing of
 * libibverbs_exp. Copy it into your program. What uses DC or clocks is linked
 * with -lmlx5.
 *
 * Errors are those of rdma-core: NULL with errno set, or a positive errno value,
 * but where a function says otherwise.
 */
#ifndef IBVEXP_MIGRATE_H
#define IBVEXP_MIGRATE_H

#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Memory regions */

/* In ibvexp_reg_mr_in.access, beside IBV_ACCESS_*: memory is allocated, too. */
#define IBVEXP_ACCESS_ALLOCATE (UINT64_C(1) << 40)

/* In ibvexp_reg_mr_in.comp_mask: dm counts. */
enum { IBVEXP_REG_MR_DM = 1 << 1 };

struct ibvexp_reg_mr_in {
	struct ibv_pd *pd;
	void *addr; /* an offset if there is dm */
	size_t length;
	uint64_t access;
	uint32_t comp_mask;
	struct ibv_dm *dm;
};

/*
 * Registers memory of the program, of a device, or pages that it maps, huge ones
 * if there are. Those stay mapped when the region goes: munmap(mr->addr,
 * mr->length) gives them back, where that matters.
 */
static inline struct ibv_mr *ibvexp_reg_mr(const struct ibvexp_reg_mr_in *in)
{
	int access = (int)(in->access & ~IBVEXP_ACCESS_ALLOCATE);
	void *addr = in->addr;
	struct ibv_mr *mr;

	if (in->comp_mask & IBVEXP_REG_MR_DM)
		return ibv_reg_dm_mr(in->pd, in->dm, (uintptr_t)in->addr, in->length,
				     (unsigned int)access | IBV_ACCESS_ZERO_BASED);
	if (!(in->access & IBVEXP_ACCESS_ALLOCATE))
		return ibv_reg_mr(in->pd, addr, in->length, access);
	addr = mmap(NULL, in->length, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	if (addr == MAP_FAILED)
		addr = mmap(NULL, in->length, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (addr == MAP_FAILED)
		return NULL;
	mr = ibv_reg_mr(in->pd, addr, in->length, access);
	if (!mr) {
		int error = errno;

		munmap(addr, in->length);
		errno = error;
	}
	return mr;
}

/* Device memory */

enum { IBVEXP_DM_TO_DEVICE, IBVEXP_DM_TO_HOST };

struct ibvexp_memcpy_dm_attr {
	int direction;
	void *host_addr;
	uint64_t dm_offset;
	size_t length;
};

static inline int ibvexp_memcpy_dm(struct ibv_dm *dm, const struct ibvexp_memcpy_dm_attr *attr)
{
	if (attr->direction == IBVEXP_DM_TO_HOST)
		return ibv_memcpy_from_dm(attr->host_addr, dm, attr->dm_offset, attr->length);
	return ibv_memcpy_to_dm(dm, attr->dm_offset, attr->host_addr, attr->length);
}

/* On-demand paging */

struct ibvexp_prefetch_attr {
	uint32_t for_writing;
	void *addr;
	size_t length;
};

static inline int ibvexp_prefetch_mr(struct ibv_mr *mr, const struct ibvexp_prefetch_attr *attr)
{
	struct ibv_sge all;

	all.addr = (uintptr_t)attr->addr;
	all.length = (uint32_t)attr->length;
	all.lkey = mr->lkey;
	return ibv_advise_mr(mr->pd,
			     attr->for_writing ? IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE
					       : IBV_ADVISE_MR_ADVICE_PREFETCH,
			     0, &all, 1);
}

/* Memory windows */

struct ibvexp_mw_bind {
	struct ibv_qp *qp;
	struct ibv_mw *mw;
	struct ibv_mw_bind bind;
};

static inline int ibvexp_bind_mw(struct ibvexp_mw_bind *request)
{
	return ibv_bind_mw(request->qp, request->mw, &request->bind);
}

/* The device's clock */

struct ibvexp_values {
	uint64_t hwclock; /* device clock, cycles */
	struct mlx5dv_clock_info clock_info;
};

enum { IBVEXP_VALUES_HW_CLOCK = 1 << 1, IBVEXP_VALUES_CLOCK_INFO = 1 << 2 };

/* Returns 0 or a negated errno value, as the program's call did. */
static inline int ibvexp_query_values(struct ibv_context *context, int which,
				      struct ibvexp_values *values)
{
	int error = 0;

	if (which & IBVEXP_VALUES_HW_CLOCK) {
		struct ibv_values_ex now;

		memset(&now, 0, sizeof(now));
		now.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
		error = ibv_query_rt_values_ex(context, &now);
		values->hwclock = (uint64_t)now.raw_clock.tv_nsec;
	}
	if (!error && (which & IBVEXP_VALUES_CLOCK_INFO))
		error = mlx5dv_get_clock_info(context, &values->clock_info);
	return -error;
}

/* Completion queues, and completions with more than ibv_wc has */

/* Creates a queue for ibvexp_poll_cq(). attr->wc_flags says what there is beside the usual. */
static inline struct ibv_cq *ibvexp_create_cq(struct ibv_context *context, int cqe,
					      void *cq_context, struct ibv_comp_channel *channel,
					      int comp_vector, struct ibv_cq_init_attr_ex *attr)
{
	struct ibv_cq_init_attr_ex whole;
	struct ibv_cq_ex *cq;

	memset(&whole, 0, sizeof(whole));
	whole.cqe = (uint32_t)cqe;
	whole.cq_context = cq_context;
	whole.channel = channel;
	whole.comp_vector = (uint32_t)comp_vector;
	whole.wc_flags = IBV_WC_STANDARD_FLAGS | (attr ? attr->wc_flags : 0);
	cq = ibv_create_cq_ex(context, &whole);
	return cq ? ibv_cq_ex_to_cq(cq) : NULL;
}

struct ibvexp_wc {
	uint64_t wr_id;
	enum ibv_wc_status status;
	enum ibv_wc_opcode opcode;
	uint32_t vendor_err;
	uint32_t byte_len;
	__be32 imm_data;
	uint32_t qp_num;
	uint32_t src_qp;
	unsigned int wc_flags; /* IBV_WC_*, and IBVEXP_WC_TIMESTAMP */
	uint16_t slid;
	uint8_t sl;
	uint8_t dlid_path_bits;
	uint64_t timestamp; /* cycles of the device */
};

enum { IBVEXP_WC_TIMESTAMP = 1 << 30 };

/* Of a queue by ibvexp_create_cq(). Returns how many there were, or a negated errno value. */
static inline int ibvexp_poll_cq(struct ibv_cq *queue, int most, struct ibvexp_wc *wc)
{
	struct ibv_cq_ex *cq = (struct ibv_cq_ex *)queue; /* the way back of ibv_cq_ex_to_cq() */
	struct ibv_poll_cq_attr attr;
	int n, error;

	if (most < 1)
		return 0;
	memset(&attr, 0, sizeof(attr));
	error = ibv_start_poll(cq, &attr);
	if (error)
		return error == ENOENT ? 0 : -error;
	for (n = 0;;) {
		memset(&wc[n], 0, sizeof(wc[n]));
		wc[n].wr_id = cq->wr_id;
		wc[n].status = cq->status;
		wc[n].qp_num = ibv_wc_read_qp_num(cq);
		if (cq->status != IBV_WC_SUCCESS) {
			wc[n].vendor_err = ibv_wc_read_vendor_err(cq);
		} else {
			wc[n].opcode = ibv_wc_read_opcode(cq);
			wc[n].wc_flags = ibv_wc_read_wc_flags(cq);
			wc[n].byte_len = ibv_wc_read_byte_len(cq);
			if (wc[n].wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV))
				wc[n].imm_data = ibv_wc_read_imm_data(cq);
			if (wc[n].opcode & IBV_WC_RECV) {
				wc[n].src_qp = ibv_wc_read_src_qp(cq);
				wc[n].slid = (uint16_t)ibv_wc_read_slid(cq);
				wc[n].sl = ibv_wc_read_sl(cq);
				wc[n].dlid_path_bits = ibv_wc_read_dlid_path_bits(cq);
			}
		}
		if (cq->read_completion_ts) {
			wc[n].timestamp = ibv_wc_read_completion_ts(cq);
			wc[n].wc_flags |= IBVEXP_WC_TIMESTAMP;
		}
		if (++n == most)
			break;
		error = ibv_next_poll(cq);
		if (error)
			break;
	}
	ibv_end_poll(cq);
	return n;
}

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

/* Queue pairs and requests with more than ibv_send_wr has */

/* Creates a queue pair for ibvexp_post_send(). Of type IBV_QPT_DRIVER: a DC initiator. */
static inline struct ibv_qp *ibvexp_create_qp(struct ibv_context *context,
					      struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp_init_attr_ex init = *attr;
	struct mlx5dv_qp_init_attr dv;
	struct ibv_qp *qp;

	memset(&dv, 0, sizeof(dv));
	init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	init.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
	switch (init.qp_type) {
	case IBV_QPT_DRIVER:
		dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DC;
		dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
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
};

/* 0, or EINVAL for an opcode that is not for this queue pair. */
static inline int ibvexp_build(struct ibv_qp_ex *qp, const struct ibvexp_send_wr *wr)
{
	qp->wr_id = wr->wr_id;
	qp->wr_flags = wr->send_flags;
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
