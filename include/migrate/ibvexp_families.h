/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Function tables in the place of the interface families of MLNX_OFED
 * (ibv_exp_query_intf), for programs that `ibvexp migrate` moved to rdma-core:
 * bursts over one queue pair, counts and lengths of completions. They go through
 * ibv_post_send() and ibv_poll_cq(); for the last bit of speed a program calls
 * ibv_wr_* and ibv_start_poll() itself.
 *
 * Stands alone, as ibvexp_migrate.h does. Functions return 0 or an errno value, or
 * what they count, or -1.
 */
#ifndef IBVEXP_FAMILIES_H
#define IBVEXP_FAMILIES_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

enum ibvexp_intf_family { IBVEXP_INTF_QP_BURST, IBVEXP_INTF_CQ, IBVEXP_INTF_WQ };
enum ibvexp_intf_scope { IBVEXP_INTF_GLOBAL };
enum ibvexp_query_intf_status {
	IBVEXP_INTF_STAT_OK,
	IBVEXP_INTF_STAT_INTF_NOT_SUPPORTED = 2,
	IBVEXP_INTF_STAT_VERSION_NOT_SUPPORTED,
	IBVEXP_INTF_STAT_INVAL_OBJ = 6,
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

/* flags of completions: both, or neither */
enum { IBVEXP_CQ_RX_IP_CSUM_OK = 1 << 0, IBVEXP_CQ_RX_TCP_UDP_CSUM_OK = 1 << 1 };

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
};

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
	struct ibv_recv_wr wr, *bad;

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
		ibvexp_family_poll_length_flags,
	};
	static struct ibvexp_wq_family wq = { ibvexp_family_wq_list, ibvexp_family_wq_burst };
	enum ibvexp_query_intf_status unused;

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
