/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * XRC domains as OFED 1.x had them, with receivers that are known by number, for
 * programs that `ibvexp migrate` moved to rdma-core: on top of ibv_xrcd.
 *
 * Stands alone, as ibvexp_migrate.h does. Errors are NULL with errno set, or a positive
 * errno value, but where a function says otherwise.
 */
#ifndef IBVEXP_XRC_H
#define IBVEXP_XRC_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A receiver that this process has created or registered. */
struct ibvexp_xrc_receiver {
	struct ibvexp_xrc_receiver *next;
	struct ibv_qp *qp;
	unsigned int registrations;
};

/* Not for several threads at once, but where the program sees to that. */
struct ibvexp_xrc_domain {
	struct ibv_context *context;
	struct ibv_xrcd *xrcd;
	struct ibvexp_xrc_receiver *receivers;
};

struct ibvexp_xrc_init_attr {
	struct ibv_qp_init_attr base;
	struct ibvexp_xrc_domain *xrc_domain;
};

static inline struct ibvexp_xrc_domain *ibvexp_open_xrc_domain(struct ibv_context *context, int fd,
							       int oflag)
{
	struct ibvexp_xrc_domain *domain = (struct ibvexp_xrc_domain *)calloc(1, sizeof(*domain));
	struct ibv_xrcd_init_attr attr;

	if (!domain)
		return NULL;
	memset(&attr, 0, sizeof(attr));
	attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
	attr.fd = fd;
	attr.oflags = oflag;
	domain->context = context;
	domain->xrcd = ibv_open_xrcd(context, &attr);
	if (!domain->xrcd) {
		free(domain);
		return NULL;
	}
	return domain;
}

static inline int ibvexp_close_xrc_domain(struct ibvexp_xrc_domain *domain)
{
	int error = domain->receivers ? EBUSY : ibv_close_xrcd(domain->xrcd);

	if (!error)
		free(domain);
	return error;
}

static inline struct ibv_srq *ibvexp_create_xrc_srq(struct ibv_pd *pd,
						    struct ibvexp_xrc_domain *domain,
						    struct ibv_cq *cq, struct ibv_srq_init_attr *attr)
{
	struct ibv_srq_init_attr_ex whole;
	struct ibv_srq *srq;

	memset(&whole, 0, sizeof(whole));
	whole.srq_context = attr->srq_context;
	whole.attr = attr->attr;
	whole.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
			  IBV_SRQ_INIT_ATTR_CQ;
	whole.srq_type = IBV_SRQT_XRC;
	whole.pd = pd;
	whole.xrcd = domain->xrcd;
	whole.cq = cq;
	srq = ibv_create_srq_ex(pd->context, &whole);
	if (srq)
		attr->attr = whole.attr;
	return srq;
}

/* 0 for a queue that has none. */
static inline uint32_t ibvexp_srq_num(struct ibv_srq *srq)
{
	uint32_t number = 0;

	return ibv_get_srq_num(srq, &number) ? 0 : number;
}

static inline struct ibvexp_xrc_receiver **ibvexp_find_receiver(struct ibvexp_xrc_domain *domain,
								uint32_t number)
{
	struct ibvexp_xrc_receiver **at = &domain->receivers;

	while (*at && (*at)->qp->qp_num != number)
		at = &(*at)->next;
	return at;
}

/* Takes over qp; NULL without memory. */
static inline struct ibvexp_xrc_receiver *ibvexp_add_receiver(struct ibvexp_xrc_domain *domain,
							      struct ibv_qp *qp)
{
	struct ibvexp_xrc_receiver *it = (struct ibvexp_xrc_receiver *)calloc(1, sizeof(*it));

	if (!it) {
		ibv_destroy_qp(qp);
		return NULL;
	}
	it->qp = qp;
	it->registrations = 1;
	it->next = domain->receivers;
	domain->receivers = it;
	return it;
}

/* attr: the base of an ibvexp_xrc_init_attr. Returns 0 or a negated errno value. */
static inline int ibvexp_create_xrc_rcv_qp(struct ibv_qp_init_attr *attr, uint32_t *number)
{
	struct ibvexp_xrc_domain *domain = ((struct ibvexp_xrc_init_attr *)attr)->xrc_domain;
	struct ibv_qp_init_attr_ex init;
	struct ibv_qp *qp;

	memset(&init, 0, sizeof(init));
	init.qp_type = IBV_QPT_XRC_RECV;
	init.qp_context = attr->qp_context;
	init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
	init.xrcd = domain->xrcd;
	qp = ibv_create_qp_ex(domain->context, &init);
	*number = 0;
	if (!qp)
		return -errno;
	if (!ibvexp_add_receiver(domain, qp))
		return -ENOMEM;
	*number = qp->qp_num;
	return 0;
}

/* Of another process, until it is destroyed. */
static inline struct ibv_qp *ibvexp_open_receiver(struct ibvexp_xrc_domain *domain, uint32_t number)
{
	struct ibv_qp_open_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
	attr.qp_num = number;
	attr.xrcd = domain->xrcd;
	attr.qp_type = IBV_QPT_XRC_RECV;
	return ibv_open_qp(domain->context, &attr);
}

static inline int ibvexp_modify_xrc_rcv_qp(struct ibvexp_xrc_domain *domain, uint32_t number,
					   struct ibv_qp_attr *attr, int mask)
{
	struct ibvexp_xrc_receiver *known = *ibvexp_find_receiver(domain, number);
	struct ibv_qp *qp = known ? known->qp : ibvexp_open_receiver(domain, number);
	int error;

	if (!qp)
		return EINVAL;
	error = ibv_modify_qp(qp, attr, mask);
	if (!known)
		ibv_destroy_qp(qp);
	return error;
}

static inline int ibvexp_query_xrc_rcv_qp(struct ibvexp_xrc_domain *domain, uint32_t number,
					  struct ibv_qp_attr *attr, int mask,
					  struct ibv_qp_init_attr *init)
{
	struct ibvexp_xrc_receiver *known = *ibvexp_find_receiver(domain, number);
	struct ibv_qp *qp = known ? known->qp : ibvexp_open_receiver(domain, number);
	int error;

	if (!qp)
		return EINVAL;
	error = ibv_query_qp(qp, attr, mask, init);
	if (!known)
		ibv_destroy_qp(qp);
	return error;
}

static inline int ibvexp_reg_xrc_rcv_qp(struct ibvexp_xrc_domain *domain, uint32_t number)
{
	struct ibvexp_xrc_receiver *known = *ibvexp_find_receiver(domain, number);
	struct ibv_qp *qp;

	if (known) {
		++known->registrations;
		return 0;
	}
	qp = ibvexp_open_receiver(domain, number);
	if (!qp)
		return EINVAL;
	return ibvexp_add_receiver(domain, qp) ? 0 : ENOMEM;
}

static inline int ibvexp_unreg_xrc_rcv_qp(struct ibvexp_xrc_domain *domain, uint32_t number)
{
	struct ibvexp_xrc_receiver **at = ibvexp_find_receiver(domain, number), *known = *at;
	int error;

	if (!known)
		return EINVAL;
	if (--known->registrations)
		return 0;
	error = ibv_destroy_qp(known->qp);
	if (error) {
		++known->registrations;
		return error;
	}
	*at = known->next;
	free(known);
	return 0;
}

#ifdef __cplusplus
}
#endif

#endif
