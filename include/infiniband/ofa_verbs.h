/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * XRC as OFED 1.x had it: domains instead of ibv_xrcd, and receive QPs that
 * are known by number only. Exported by libibverbs_exp under IBVERBS_1.1, the
 * version that legacy programs ask for.
 *
 * The initiating side creates a QP of type IBV_QPT_XRC with the domain and
 * posts to the number of a shared receive queue. rdma-core's ibv_qp_init_attr
 * and ibv_send_wr have no members xrc_domain and xrc_remote_srq_num; new code
 * uses ibv_open_xrcd() and qp_type.xrc.remote_srqn.
 *
 * Threads: as for the modern XRC calls, all may be called at any time on
 * different objects.
 */
#ifndef INFINIBAND_OFA_VERBS_H
#define INFINIBAND_OFA_VERBS_H

#include <pthread.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Value of ibv_srq_legacy.handle by which the library knows its own. */
#define LEGACY_XRC_SRQ_HANDLE 0xffffffff

/* An XRC domain; made by ibv_open_xrc_domain(). */
struct ibv_xrc_domain {
	struct ibv_context *context;
	uint32_t handle;
};

/*
 * What ibv_create_xrc_srq() really returns, cast to struct ibv_srq. The three
 * _bin_compat members sit where OFED 1.x had the numbers, the last three
 * where MLNX_OFED 3.1 and later expect them. Not every ibv_srq is one: check
 * handle == LEGACY_XRC_SRQ_HANDLE first.
 */
struct ibv_srq_legacy {
	struct ibv_context *context;
	void *srq_context;
	struct ibv_pd *pd;
	uint32_t handle;
	uint32_t events_completed;
	uint32_t xrc_srq_num_bin_compat;
	struct ibv_xrc_domain *xrc_domain_bin_compat;
	struct ibv_cq *xrc_cq_bin_compat;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	void *ibv_srq; /* the SRQ of rdma-core behind this one */
	uint32_t xrc_srq_num;
	struct ibv_xrc_domain *xrc_domain;
	struct ibv_cq *xrc_cq;
};

/*
 * The legacy struct ibv_qp_init_attr had one member more than rdma-core's,
 * the domain at byte 64. Programs that are compiled against rdma-core name it
 * through this structure; a QP of type IBV_QPT_XRC needs it as well.
 */
struct ibvexp_xrc_qp_init_attr {
	struct ibv_qp_init_attr base;
	struct ibv_xrc_domain *xrc_domain;
};

/*
 * ibv_open_xrc_domain - open or create an XRC domain
 *
 * @context  device
 * @fd       file whose inode identifies the domain to other processes, or -1
 *           for a domain private to this process, which needs O_CREAT
 * @oflag    O_CREAT and O_EXCL as for open(2)
 *
 * Opens are counted; undo each with ibv_close_xrc_domain().
 * Returns: the domain, or NULL with errno set.
 * Rule: manual 3.4.8; modern equivalent ibv_open_xrcd().
 */
struct ibv_xrc_domain *ibv_open_xrc_domain(struct ibv_context *context, int fd,
					   int oflag);

/*
 * ibv_close_xrc_domain - undo one ibv_open_xrc_domain()
 *
 * Returns: 0, or a positive errno value (EBUSY: QPs or SRQs still use it).
 * Rule: manual 3.4.10.
 */
int ibv_close_xrc_domain(struct ibv_xrc_domain *d);

/*
 * ibv_create_xrc_srq - create a shared receive queue that XRC can address
 *
 * @pd              protection domain of the receive buffers
 * @xrc_domain      domain in which the queue's number is valid
 * @xrc_cq          where completions of the queue go
 * @srq_init_attr   attributes; granted sizes (max_wr in work requests,
 *                  max_sge in elements) are written back
 *
 * Cast the result to struct ibv_srq_legacy to read xrc_srq_num. Free it with
 * ibv_destroy_srq().
 * Returns: the queue, or NULL with errno set.
 * Rule: legacy header; modern equivalent ibv_create_srq_ex().
 */
struct ibv_srq *ibv_create_xrc_srq(struct ibv_pd *pd,
				   struct ibv_xrc_domain *xrc_domain,
				   struct ibv_cq *xrc_cq,
				   struct ibv_srq_init_attr *srq_init_attr);

/*
 * ibv_create_xrc_rcv_qp - create the receiving end of an XRC connection
 *
 * The QP cannot be posted to; it only holds the connection. The creator is
 * registered with it; it exists until the last registered process has called
 * ibv_unreg_xrc_rcv_qp() or ended. The kernel of today destroys it no later
 * than the last process that holds it open.
 *
 * @init_attr     as for ibv_create_qp(), and the domain: must point to the
 *                base member of a struct ibvexp_xrc_qp_init_attr
 * @xrc_rcv_qpn   receives the QP number (24 bits)
 *
 * Returns: 0, or a negative errno value.
 * Rule: legacy header; manual 3.4.11, which says -1 with errno: both are set.
 */
int ibv_create_xrc_rcv_qp(struct ibv_qp_init_attr *init_attr,
			  uint32_t *xrc_rcv_qpn);

/*
 * ibv_modify_xrc_rcv_qp - change the state of an XRC receive QP
 *
 * @attr_mask  each transition needs the complete set for an RC receiver: INIT
 *             and RTR; RTS is not needed
 *
 * Returns: 0, or a positive errno value (EINVAL: no such QP in the domain).
 * Rule: manual 3.4.12; see ibv_modify_qp().
 */
int ibv_modify_xrc_rcv_qp(struct ibv_xrc_domain *xrc_domain,
			  uint32_t xrc_qp_num, struct ibv_qp_attr *attr,
			  int attr_mask);

/*
 * ibv_query_xrc_rcv_qp - read the attributes of an XRC receive QP
 *
 * Writes at least the attributes that @attr_mask names, perhaps more.
 *
 * Returns: 0, or a positive errno value (EINVAL: no such QP in the domain).
 * Rule: legacy header; see ibv_query_qp().
 */
int ibv_query_xrc_rcv_qp(struct ibv_xrc_domain *xrc_domain,
			 uint32_t xrc_qp_num, struct ibv_qp_attr *attr,
			 int attr_mask, struct ibv_qp_init_attr *init_attr);

/*
 * ibv_reg_xrc_rcv_qp - keep an XRC receive QP alive on behalf of this process
 *
 * Returns: 0, or a positive errno value (EINVAL: unknown number, not an XRC
 * receive QP, or of another domain).
 * Rule: legacy header; modern equivalent ibv_open_qp().
 */
int ibv_reg_xrc_rcv_qp(struct ibv_xrc_domain *xrc_domain, uint32_t xrc_qp_num);

/*
 * ibv_unreg_xrc_rcv_qp - undo ibv_create_xrc_rcv_qp() or ibv_reg_xrc_rcv_qp()
 *
 * The QP is destroyed with its last registration.
 * Returns: 0, or a positive errno value (EINVAL: not registered).
 * Rule: legacy header.
 */
int ibv_unreg_xrc_rcv_qp(struct ibv_xrc_domain *xrc_domain,
			 uint32_t xrc_qp_num);

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_OFA_VERBS_H */
