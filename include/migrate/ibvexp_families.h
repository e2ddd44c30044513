/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Function tables in the place of the interface families of MLNX_OFED
 * (ibv_exp_query_intf), for programs that `ibvexp migrate` moved to rdma-core:
 * bursts over one queue pair, counts and lengths of completions. They go through
 * ibv_post_send() and ibv_poll_cq(); for the last bit of speed a program calls
 * ibv_wr_* and ibv_start_poll() itself. Striding receive queues, which libmlx5 creates
 * but neither fills nor polls, are driven here.
 *
 * Stands alone, as ibvexp_migrate.h does; linked with -lmlx5. Functions return 0 or an
 * errno value, or what they count, or -1.
 */
#ifndef IBVEXP_FAMILIES_H
#define IBVEXP_FAMILIES_H

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

enum ibvexp_intf_family { IBVEXP_INTF_QP_BURST, IBVEXP_INTF_CQ, IBVEXP_INTF_WQ };
enum ibvexp_intf_scope { IBVEXP_INTF_GLOBAL };
enum ibvexp_query_intf_status {
	IBVEXP_INTF_STAT_OK,
	IBVEXP_INTF_STAT_VENDOR_NOT_SUPPORTED,
	IBVEXP_INTF_STAT_INTF_NOT_SUPPORTED,
	IBVEXP_INTF_STAT_VERSION_NOT_SUPPORTED,
	IBVEXP_INTF_STAT_INVAL_PARAM,
	IBVEXP_INTF_STAT_INVAL_OBJ_STATE,
	IBVEXP_INTF_STAT_INVAL_OBJ,
	IBVEXP_INTF_STAT_FLAGS_NOT_SUPPORTED,
	IBVEXP_INTF_STAT_FAMILY_FLAGS_NOT_SUPPORTED,
};

struct ibvexp_query_intf_params {
	enum ibvexp_intf_scope intf_scope;
	uint32_t intf; /* enum ibvexp_intf_family */
	uint32_t intf_version; /* 0 or 1; the tables have what both had */
	void *obj;
};

/* flags of requests */
enum {
	IBVEXP_BURST_SIGNALED = 1 << 0,
	IBVEXP_BURST_SOLICITED = 1 << 1,
	IBVEXP_BURST_IP_CSUM = 1 << 2,
	IBVEXP_BURST_FENCE = 1 << 4,
};

/* flags of completions. ibv_poll_cq() knows of the first two: both, or neither */
enum {
	IBVEXP_CQ_RX_IP_CSUM_OK = 1 << 0,
	IBVEXP_CQ_RX_TCP_UDP_CSUM_OK = 1 << 1,
	IBVEXP_CQ_RX_IPV4_PACKET = 1 << 2,
	IBVEXP_CQ_RX_IPV6_PACKET = 1 << 3,
	IBVEXP_CQ_RX_MULTI_PACKET_LAST = 1 << 9,
	IBVEXP_CQ_RX_TCP_PACKET = 1 << 11,
	IBVEXP_CQ_RX_UDP_PACKET = 1 << 12,
	IBVEXP_CQ_RX_WITH_TIMESTAMP = 1 << 13,
};

struct ibvexp_qp_burst_family {
	int (*send_pending)(struct ibv_qp *qp, uint64_t addr, uint32_t length, uint32_t lkey,
			    uint32_t flags);
	int (*send_pending_inline)(struct ibv_qp *qp, void *addr, uint32_t length, uint32_t flags);
	int (*send_pending_sg_list)(struct ibv_qp *qp, struct ibv_sge *list, uint32_t num,
				    uint32_t flags);
	int (*send_flush)(struct ibv_qp *qp);
	int (*send_burst)(struct ibv_qp *qp, struct ibv_sge *list, uint32_t num, uint32_t flags);
	int (*recv_burst)(struct ibv_qp *qp, struct ibv_sge *list, uint32_t num);
};

struct ibvexp_wq_family {
	int (*recv_sg_list)(struct ibv_wq *wq, struct ibv_sge *list, uint32_t num);
	int (*recv_burst)(struct ibv_wq *wq, struct ibv_sge *list, uint32_t num);
};

struct ibvexp_cq_family {
	int32_t (*poll_cnt)(struct ibv_cq *cq, uint32_t max);
	int32_t (*poll_length)(struct ibv_cq *cq, void *buf, uint32_t *inl);
	int32_t (*poll_length_flags)(struct ibv_cq *cq, void *buf, uint32_t *inl, uint32_t *flags);
	int32_t (*poll_length_flags_mp_rq)(struct ibv_cq *cq, uint32_t *offset, uint32_t *flags);
	int32_t (*poll_length_flags_mp_rq_ts)(struct ibv_cq *cq, uint32_t *offset, uint32_t *flags,
					      uint64_t *timestamp);
};

/* Striding receive queues */

/* In ibvexp_wq_init_attr.comp_mask, beside IBV_WQ_INIT_ATTR_*: mp_rq counts. */
enum { IBVEXP_WQ_MP_RQ = 1 << 30 };

struct ibvexp_wq_init_attr {
	void *wq_context;
	enum ibv_wq_type wq_type;
	uint32_t max_wr;
	uint32_t max_sge;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	uint32_t comp_mask;
	uint32_t create_flags;
	struct {
		int two_byte_shift;
		uint8_t single_wqe_log_num_of_strides;
		uint8_t single_stride_log_num_of_bytes;
	} mp_rq;
};

/* One of them, and how far it has been filled and read. */
struct ibvexp_striding {
	struct ibvexp_striding *next;
	struct ibv_wq *wq; /* NULL: free */
	struct ibv_cq *cq;
	struct mlx5dv_rwq entries;
	struct mlx5dv_cq completions;
	uint32_t head, tail; /* buffers */
	uint32_t taken; /* completions */
	uint32_t strides, log_bytes, shift;
};

/* All of the process; what is free is used again and stays. */
__attribute__((weak)) struct ibvexp_striding *ibvexp_striding_queues;

static inline struct ibvexp_striding *ibvexp_find_striding(const struct ibv_wq *wq,
							   const struct ibv_cq *cq)
{
	struct ibvexp_striding *at = __atomic_load_n(&ibvexp_striding_queues, __ATOMIC_ACQUIRE);

	while (at && (!at->wq || (wq && at->wq != wq) || (cq && at->cq != cq)))
		at = at->next;
	return at;
}

/* From what a queue was created with; 0 or an errno value. */
static inline int ibvexp_open_striding(struct ibv_wq *wq, const struct ibvexp_wq_init_attr *attr)
{
	struct ibvexp_striding *it = (struct ibvexp_striding *)calloc(1, sizeof(*it));
	struct mlx5dv_obj object;

	if (!it)
		return ENOMEM;
	memset(&object, 0, sizeof(object));
	object.rwq.in = wq;
	object.rwq.out = &it->entries;
	object.cq.in = attr->cq;
	object.cq.out = &it->completions;
	if (mlx5dv_init_obj(&object, MLX5DV_OBJ_RWQ | MLX5DV_OBJ_CQ)) {
		free(it);
		return EINVAL;
	}
	it->wq = wq;
	it->cq = attr->cq;
	it->strides = 1u << attr->mp_rq.single_wqe_log_num_of_strides;
	it->log_bytes = attr->mp_rq.single_stride_log_num_of_bytes;
	it->shift = attr->mp_rq.two_byte_shift ? 2 : 0;
	it->next = __atomic_load_n(&ibvexp_striding_queues, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&ibvexp_striding_queues, &it->next, it, 0,
					    __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		;
	return 0;
}

static inline int ibvexp_destroy_wq(struct ibv_wq *wq)
{
	struct ibvexp_striding *it = ibvexp_find_striding(wq, NULL);
	int error = ibv_destroy_wq(wq);

	if (!error && it)
		it->wq = NULL; /* not freed: another thread may be reading it */
	return error;
}

/* A receive queue, a striding one if that is asked for; ibvexp_destroy_wq() ends it. */
static inline struct ibv_wq *ibvexp_create_wq(struct ibv_context *context,
					      const struct ibvexp_wq_init_attr *attr)
{
	struct ibv_wq_init_attr init;
	struct mlx5dv_wq_init_attr dv;
	struct ibv_wq *wq;
	int error;

	memset(&init, 0, sizeof(init));
	init.wq_context = attr->wq_context;
	init.wq_type = attr->wq_type;
	init.max_wr = attr->max_wr;
	init.max_sge = attr->max_sge;
	init.pd = attr->pd;
	init.cq = attr->cq;
	init.comp_mask = attr->comp_mask & ~(uint32_t)IBVEXP_WQ_MP_RQ;
	init.create_flags = attr->create_flags;
	if (!(attr->comp_mask & IBVEXP_WQ_MP_RQ))
		return ibv_create_wq(context, &init);
	memset(&dv, 0, sizeof(dv));
	dv.comp_mask = MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ;
	dv.striding_rq_attrs.two_byte_shift_en = (uint8_t)attr->mp_rq.two_byte_shift;
	dv.striding_rq_attrs.single_wqe_log_num_of_strides =
		attr->mp_rq.single_wqe_log_num_of_strides;
	dv.striding_rq_attrs.single_stride_log_num_of_bytes =
		attr->mp_rq.single_stride_log_num_of_bytes;
	wq = mlx5dv_create_wq(context, &init, &dv);
	error = wq ? ibvexp_open_striding(wq, attr) : 0;
	if (error) {
		ibv_destroy_wq(wq);
		errno = error;
		return NULL;
	}
	return wq;
}

/* A buffer for many packets: one entry of the queue, behind a segment that links others. */
static inline int ibvexp_fill_striding(struct ibvexp_striding *it, const struct ibv_sge *list,
				       uint32_t num)
{
	char *entry = (char *)it->entries.buf +
		      (size_t)(it->head & (it->entries.wqe_cnt - 1)) * it->entries.stride;
	struct mlx5_wqe_data_seg *data =
		(struct mlx5_wqe_data_seg *)(entry + sizeof(struct mlx5_wqe_srq_next_seg));
	uint32_t room = (it->entries.stride - (uint32_t)sizeof(struct mlx5_wqe_srq_next_seg)) /
			(uint32_t)sizeof(*data);

	if (it->head - it->tail == it->entries.wqe_cnt)
		return ENOMEM;
	if (num > room)
		return EINVAL;
	for (; num > 0; --num, --room, ++list)
		mlx5dv_set_data_seg(data++, list->length, list->lkey, list->addr);
	if (room)
		mlx5dv_set_data_seg(data, 0, MLX5_INVALID_LKEY, 0);
	++it->head;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	*(volatile __be32 *)it->entries.dbrec = htobe32(it->head & 0xffff);
	return 0;
}

static inline uint32_t ibvexp_packet_flags(const struct mlx5_cqe64 *cqe)
{
	const unsigned int l3 = cqe->l4_hdr_type_etc >> 2 & 3, l4 = cqe->l4_hdr_type_etc >> 4 & 7;
	uint32_t flags = 0;

	if (l3 == MLX5_CQE_L3_HDR_TYPE_IPV4)
		flags |= IBVEXP_CQ_RX_IPV4_PACKET;
	if (l3 == MLX5_CQE_L3_HDR_TYPE_IPV6)
		flags |= IBVEXP_CQ_RX_IPV6_PACKET;
	if (l4 == 2)
		flags |= IBVEXP_CQ_RX_UDP_PACKET;
	if (l4 == 1 || l4 == 3 || l4 == 4)
		flags |= IBVEXP_CQ_RX_TCP_PACKET;
	/* Without a header the device calls the layer good. */
	if ((cqe->hds_ip_ext & MLX5_CQE_L3_OK) && l3 != MLX5_CQE_L3_HDR_TYPE_NONE)
		flags |= IBVEXP_CQ_RX_IP_CSUM_OK;
	if ((cqe->hds_ip_ext & MLX5_CQE_L4_OK) && l4 != 0)
		flags |= IBVEXP_CQ_RX_TCP_UDP_CSUM_OK;
	return flags;
}

/*
 * Bytes of the next packet, and where in its buffer it lies. 0: there is none, or it
 * did not fit into what was left of the buffer, and flags say that the next one is in
 * another. -1: an error. timestamp: cycles of the device; may be NULL.
 */
static inline int32_t ibvexp_poll_striding_ts(struct ibv_cq *cq, uint32_t *offset,
					      uint32_t *flags, uint64_t *timestamp)
{
	struct ibvexp_striding *it = ibvexp_find_striding(NULL, cq);
	const struct mlx5_cqe64 *cqe;
	uint32_t word, first, used;
	uint8_t op_own;
	int filler;

	*flags = 0;
	if (!it)
		return -1;
	cqe = (const struct mlx5_cqe64 *)((const char *)it->completions.buf +
					  (size_t)(it->taken & (it->completions.cqe_cnt - 1)) *
						  it->completions.cqe_size +
					  (it->completions.cqe_size - sizeof(*cqe)));
	op_own = __atomic_load_n(&cqe->op_own, __ATOMIC_ACQUIRE);
	if (op_own >> 4 == MLX5_CQE_INVALID || (op_own & 1) != !!(it->taken & it->completions.cqe_cnt))
		return 0;
	/* Errors, and compressed completions, which the queue was not created for. */
	if (op_own >> 4 > MLX5_CQE_RESP_SEND_INV || (op_own & 0xc) == 0xc)
		return -1;
	word = be32toh(cqe->byte_cnt);
	first = be16toh(cqe->wqe_counter);
	used = word >> 16 & 0x7fff;
	filler = word >> 31 != 0;
	*offset = (first << it->log_bytes) + (filler ? 0 : it->shift);
	if (!filler)
		*flags = ibvexp_packet_flags(cqe);
	if (!filler && timestamp) {
		*timestamp = be64toh(cqe->timestamp);
		*flags |= IBVEXP_CQ_RX_WITH_TIMESTAMP;
	}
	if (first + used >= it->strides) {
		*flags |= IBVEXP_CQ_RX_MULTI_PACKET_LAST;
		++it->tail;
	}
	++it->taken;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	*(volatile __be32 *)it->completions.dbrec = htobe32(it->taken & 0xffffff);
	return filler ? 0 : (int32_t)((word & 0xffff) - it->shift);
}

static inline int32_t ibvexp_poll_striding(struct ibv_cq *cq, uint32_t *offset, uint32_t *flags)
{
	return ibvexp_poll_striding_ts(cq, offset, flags, NULL);
}

/* The tables */

static inline int ibvexp_family_send(struct ibv_qp *qp, struct ibv_sge *list, uint32_t num,
				     uint32_t flags, unsigned int more)
{
	struct ibv_send_wr wr, *bad;

	memset(&wr, 0, sizeof(wr));
	wr.opcode = IBV_WR_SEND;
	wr.sg_list = list;
	wr.num_sge = (int)num;
	wr.send_flags = more;
	if (flags & IBVEXP_BURST_SIGNALED)
		wr.send_flags |= IBV_SEND_SIGNALED;
	if (flags & IBVEXP_BURST_SOLICITED)
		wr.send_flags |= IBV_SEND_SOLICITED;
	if (flags & IBVEXP_BURST_IP_CSUM)
		wr.send_flags |= IBV_SEND_IP_CSUM;
	if (flags & IBVEXP_BURST_FENCE)
		wr.send_flags |= IBV_SEND_FENCE;
	return ibv_post_send(qp, &wr, &bad);
}

static inline int ibvexp_family_send_pending(struct ibv_qp *qp, uint64_t addr, uint32_t length,
					     uint32_t lkey, uint32_t flags)
{
	struct ibv_sge piece;

	piece.addr = addr;
	piece.length = length;
	piece.lkey = lkey;
	return ibvexp_family_send(qp, &piece, 1, flags, 0);
}

static inline int ibvexp_family_send_inline(struct ibv_qp *qp, void *addr, uint32_t length,
					    uint32_t flags)
{
	struct ibv_sge piece;

	piece.addr = (uintptr_t)addr;
	piece.length = length;
	piece.lkey = 0;
	return ibvexp_family_send(qp, &piece, 1, flags, IBV_SEND_INLINE);
}

static inline int ibvexp_family_send_list(struct ibv_qp *qp, struct ibv_sge *list, uint32_t num,
					  uint32_t flags)
{
	return ibvexp_family_send(qp, list, num, flags, 0);
}

/* Requests are on their way already. */
static inline int ibvexp_family_send_flush(struct ibv_qp *qp)
{
	(void)qp;
	return 0;
}

/* A message for each piece. */
static inline int ibvexp_family_send_burst(struct ibv_qp *qp, struct ibv_sge *list, uint32_t num,
					   uint32_t flags)
{
	uint32_t i;
	int error = 0;

	for (i = 0; !error && i < num; ++i)
		error = ibvexp_family_send(qp, &list[i], 1, flags, 0);
	return error;
}

static inline int ibvexp_family_recv_burst(struct ibv_qp *qp, struct ibv_sge *list, uint32_t num)
{
	struct ibv_recv_wr wr, *bad;
	uint32_t i;
	int error = 0;

	memset(&wr, 0, sizeof(wr));
	wr.num_sge = 1;
	for (i = 0; !error && i < num; ++i) {
		wr.sg_list = &list[i];
		error = ibv_post_recv(qp, &wr, &bad);
	}
	return error;
}

static inline int ibvexp_family_wq_list(struct ibv_wq *wq, struct ibv_sge *list, uint32_t num)
{
	struct ibvexp_striding *striding = ibvexp_find_striding(wq, NULL);
	struct ibv_recv_wr wr, *bad;

	if (striding)
		return ibvexp_fill_striding(striding, list, num);
	memset(&wr, 0, sizeof(wr));
	wr.sg_list = list;
	wr.num_sge = (int)num;
	return ibv_post_wq_recv(wq, &wr, &bad);
}

static inline int ibvexp_family_wq_burst(struct ibv_wq *wq, struct ibv_sge *list, uint32_t num)
{
	uint32_t i;
	int error = 0;

	for (i = 0; !error && i < num; ++i)
		error = ibvexp_family_wq_list(wq, &list[i], 1);
	return error;
}

/* How many completions there were, at most max; -1 for one in error. */
static inline int32_t ibvexp_family_poll_cnt(struct ibv_cq *cq, uint32_t max)
{
	struct ibv_wc wc;
	uint32_t n;
	int got;

	for (n = 0; n < max; ++n) {
		got = ibv_poll_cq(cq, 1, &wc);
		if (got < 0 || (got && wc.status != IBV_WC_SUCCESS))
			return -1;
		if (!got)
			break;
	}
	return (int32_t)n;
}

/* Bytes of the next message, 0 if there is none, -1 for an error. Data is where it was posted. */
static inline int32_t ibvexp_family_poll_length_flags(struct ibv_cq *cq, void *buf, uint32_t *inl,
						      uint32_t *flags)
{
	struct ibv_wc wc;
	int got = ibv_poll_cq(cq, 1, &wc);

	(void)buf;
	if (got < 0 || (got && wc.status != IBV_WC_SUCCESS))
		return -1;
	if (!got)
		return 0;
	if (inl)
		*inl = 0;
	if (flags)
		*flags = wc.wc_flags & IBV_WC_IP_CSUM_OK
				 ? IBVEXP_CQ_RX_IP_CSUM_OK | IBVEXP_CQ_RX_TCP_UDP_CSUM_OK
				 : 0;
	return (int32_t)wc.byte_len;
}

static inline int32_t ibvexp_family_poll_length(struct ibv_cq *cq, void *buf, uint32_t *inl)
{
	return ibvexp_family_poll_length_flags(cq, buf, inl, NULL);
}

/* A table for params->obj; it needs no release. */
static inline void *ibvexp_query_intf(struct ibv_context *context,
				      struct ibvexp_query_intf_params *params,
				      enum ibvexp_query_intf_status *status)
{
	static struct ibvexp_qp_burst_family burst = {
		ibvexp_family_send_pending, ibvexp_family_send_inline,
		ibvexp_family_send_list, ibvexp_family_send_flush,
		ibvexp_family_send_burst, ibvexp_family_recv_burst,
	};
	static struct ibvexp_cq_family cq = {
		ibvexp_family_poll_cnt, ibvexp_family_poll_length,
		ibvexp_family_poll_length_flags, ibvexp_poll_striding, ibvexp_poll_striding_ts,
	};
	static struct ibvexp_wq_family wq = { ibvexp_family_wq_list, ibvexp_family_wq_burst };
	enum ibvexp_query_intf_status unused;
	struct ibvexp_striding *first, *more;

	(void)context;
	if (!status)
		status = &unused;
	if (!params->obj) {
		*status = IBVEXP_INTF_STAT_INVAL_OBJ;
		return NULL;
	}
	if (params->intf_version > 1) {
		*status = IBVEXP_INTF_STAT_VERSION_NOT_SUPPORTED;
		return NULL;
	}
	*status = IBVEXP_INTF_STAT_OK;
	switch (params->intf) {
	case IBVEXP_INTF_QP_BURST:
		return &burst;
	case IBVEXP_INTF_CQ:
		/* Completions are read for one striding queue. */
		first = ibvexp_find_striding(NULL, (struct ibv_cq *)params->obj);
		for (more = first ? first->next : NULL; more; more = more->next)
			if (more->wq && more->cq == first->cq) {
				*status = IBVEXP_INTF_STAT_INVAL_OBJ_STATE;
				return NULL;
			}
		return &cq;
	case IBVEXP_INTF_WQ:
		return &wq;
	default:
		*status = IBVEXP_INTF_STAT_INTF_NOT_SUPPORTED;
		return NULL;
	}
}

static inline int ibvexp_release_intf(struct ibv_context *context, void *table)
{
	(void)context;
	(void)table;
	return 0;
}

#ifdef __cplusplus
}
#endif

#endif
