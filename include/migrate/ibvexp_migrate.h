/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What programs need that `ibvexp migrate` moved from the experimental verbs to
 * rdma-core, where one call of then is several of now. Everything else became
 * calls of rdma-core in the program itself.
 *
 * This file stands alone: it needs rdma-core's headers and nothing of
 * libibverbs_exp. Copy it into your program. What uses clocks or the memory of queues
 * is linked with -lmlx5. ibvexp_requests.h has queue pairs and work requests,
 * ibvexp_families.h the interface families and striding receive queues,
 * ibvexp_xrc.h the XRC domains of the time before libibverbs 1.2.
 *
 * Errors are those of rdma-core: NULL with errno set, or a positive errno value,
 * but where a function says otherwise.
 */
#ifndef IBVEXP_MIGRATE_H
#define IBVEXP_MIGRATE_H

#include <endian.h>
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

/* A level of atomic operations that no device of today reports. */
#define IBVEXP_ATOMIC_HCA_REPLY_BE ((enum ibv_atomic_cap)0x40)

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
	const size_t most = (size_t)1 << 30;
	struct ibv_sge part;
	size_t done = 0;
	int error = 0;

	/* One element of the list names less than 4 GiB. */
	for (; done < attr->length && error == 0; done += part.length) {
		part.addr = (uintptr_t)attr->addr + done;
		part.length = (uint32_t)(attr->length - done < most ? attr->length - done : most);
		part.lkey = mr->lkey;
		error = ibv_advise_mr(mr->pd,
				      attr->for_writing ? IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE
							: IBV_ADVISE_MR_ADVICE_PREFETCH,
				      0, &part, 1);
	}
	/* The pages of a region that is not on demand are there already. */
	return error == ENOENT ? 0 : error;
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

/* The memory of queues, for programs that write work requests by hand */

struct ibvexp_qp_info {
	uint32_t qpn;
	volatile uint32_t *dbrec; /* [0]: receives, [1]: sends */
	struct {
		void *buf;
		unsigned int wqe_cnt;
		unsigned int stride;
	} sq, rq;
	struct {
		void *reg;
		unsigned int size; /* 0: doorbells of 8 bytes only */
	} bf;
};

struct ibvexp_cq_info {
	uint32_t cqn;
	unsigned int cqe_cnt;
	void *buf;
	volatile uint32_t *dbrec;
	unsigned int cqe_size;
};

static inline int ibvexp_get_qp_info(struct ibv_qp *qp, struct ibvexp_qp_info *info)
{
	struct mlx5dv_obj object;
	struct mlx5dv_qp dv;

	memset(&object, 0, sizeof(object));
	memset(&dv, 0, sizeof(dv));
	object.qp.in = qp;
	object.qp.out = &dv;
	if (mlx5dv_init_obj(&object, MLX5DV_OBJ_QP))
		return -1;
	info->qpn = qp->qp_num;
	info->dbrec = (volatile uint32_t *)dv.dbrec;
	info->sq.buf = dv.sq.buf;
	info->sq.wqe_cnt = dv.sq.wqe_cnt;
	info->sq.stride = dv.sq.stride;
	info->rq.buf = dv.rq.buf;
	info->rq.wqe_cnt = dv.rq.wqe_cnt;
	info->rq.stride = dv.rq.stride;
	info->bf.reg = dv.bf.reg;
	info->bf.size = dv.bf.size;
	return 0;
}

static inline int ibvexp_get_cq_info(struct ibv_cq *cq, struct ibvexp_cq_info *info)
{
	struct mlx5dv_obj object;
	struct mlx5dv_cq dv;

	memset(&object, 0, sizeof(object));
	memset(&dv, 0, sizeof(dv));
	object.cq.in = cq;
	object.cq.out = &dv;
	if (mlx5dv_init_obj(&object, MLX5DV_OBJ_CQ))
		return -1;
	info->cqn = dv.cqn;
	info->cqe_cnt = dv.cqe_cnt;
	info->buf = dv.buf;
	info->dbrec = (volatile uint32_t *)dv.dbrec;
	info->cqe_size = dv.cqe_size;
	return 0;
}

/*
 * Lets the device know that completions up to this one have been read. libmlx5 keeps a
 * count of its own, which a program cannot set: who reads completions by hand does
 * so to the end, and leaves ibv_poll_cq() alone.
 */
static inline void ibvexp_update_cq_ci(struct ibv_cq *cq, unsigned int taken)
{
	struct ibvexp_cq_info info;

	if (!ibvexp_get_cq_info(cq, &info))
		info.dbrec[0] = htobe32(taken & 0xffffff);
}

/*
 * Whether a completion with this number is of that queue pair. Those of raw packets
 * have the number of its receive or send queue.
 */
static inline int ibvexp_is_of(uint32_t qp_num, struct ibv_qp *qp)
{
	struct mlx5dv_obj object;
	struct mlx5dv_qp dv;

	if (qp_num == qp->qp_num || qp->qp_type != IBV_QPT_RAW_PACKET)
		return qp_num == qp->qp_num;
	memset(&object, 0, sizeof(object));
	memset(&dv, 0, sizeof(dv));
	dv.comp_mask = MLX5DV_QP_MASK_RAW_QP_HANDLES;
	object.qp.in = qp;
	object.qp.out = &dv;
	if (mlx5dv_init_obj(&object, MLX5DV_OBJ_QP) ||
	    !(dv.comp_mask & MLX5DV_QP_MASK_RAW_QP_HANDLES))
		return 0;
	return qp_num == dv.rqn || qp_num == dv.sqn;
}

/* Addresses of a port */

/* InfiniBand and the first RoCE are one type, as they were. */
enum ibvexp_gid_type { IBVEXP_GID_IB_ROCE_V1, IBVEXP_GID_ROCE_V2, IBVEXP_GID_ROCE_V1_5 };

struct ibvexp_gid_attr {
	enum ibvexp_gid_type type;
	union ibv_gid gid;
};

static inline int ibvexp_query_gid_attr(struct ibv_context *context, uint8_t port,
					unsigned int index, struct ibvexp_gid_attr *attr)
{
	struct ibv_gid_entry entry;
	int error = ibv_query_gid_ex(context, port, index, &entry, 0);

	/* An entry that holds no GID was one of zeros. */
	if (error == ENODATA || error == -ENODATA)
		memset(&entry, 0, sizeof(entry));
	else if (error)
		return error;
	attr->gid = entry.gid;
	attr->type = entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? IBVEXP_GID_ROCE_V2
							    : IBVEXP_GID_IB_ROCE_V1;
	return 0;
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

/*
 * Creates a queue for ibvexp_poll_cq(). attr->wc_flags says what there is beside the usual, which
 * on devices that match tags are these.
 */
static inline struct ibv_cq *ibvexp_create_cq(struct ibv_context *context, int cqe,
					      void *cq_context, struct ibv_comp_channel *channel,
					      int comp_vector, struct ibv_cq_init_attr_ex *attr)
{
	struct ibv_cq_init_attr_ex whole;
	struct ibv_device_attr_ex device;
	struct ibv_cq_ex *cq;

	memset(&whole, 0, sizeof(whole));
	whole.cqe = (uint32_t)cqe;
	whole.cq_context = cq_context;
	whole.channel = channel;
	whole.comp_vector = (uint32_t)comp_vector;
	whole.wc_flags = IBV_WC_STANDARD_FLAGS | (attr ? attr->wc_flags : 0);
	if (!ibv_query_device_ex(context, NULL, &device) && device.tm_caps.max_num_tags)
		whole.wc_flags |= IBV_WC_EX_WITH_TM_INFO;
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
	struct ibv_wc_tm_info tm_info; /* of IBV_WC_TM_RECV */
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
			if (wc[n].opcode == IBV_WC_TM_RECV && cq->read_tm_info)
				ibv_wc_read_tm_info(cq, &wc[n].tm_info);
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

/* Shared receive queues */

static inline void ibvexp_set_srq(struct ibv_srq_init_attr_ex *attr, struct ibv_srq_init_attr base)
{
	attr->srq_context = base.srq_context;
	attr->attr = base.attr;
}

/* attr->comp_mask names what there is beside PD and type. */
static inline struct ibv_srq *ibvexp_create_srq(struct ibv_context *context,
						struct ibv_srq_init_attr_ex *attr)
{
	struct ibv_srq_init_attr_ex whole = *attr;
	struct ibv_srq *srq;

	whole.comp_mask |= IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
	srq = ibv_create_srq_ex(context, &whole);
	if (srq)
		attr->attr = whole.attr;
	return srq;
}

/* An XRC initiator receives nothing. Programs filled that part in nevertheless, and Linux refuses it. */
static inline struct ibv_qp *ibvexp_create_xrc_qp(struct ibv_context *context,
						  struct ibv_qp_init_attr_ex *attr)
{
	if (attr->qp_type == IBV_QPT_XRC_SEND) {
		attr->srq = NULL;
		attr->cap.max_recv_wr = attr->cap.max_recv_sge = 0;
	}
	return ibv_create_qp_ex(context, attr);
}

/* Work queues, of ibv_wq_init_attr and of ibvexp_wq_init_attr */

/* flags: IBV_WQ_FLAGS_*. attr->comp_mask says that they count. */
#define ibvexp_add_wq_flags(attr, flags) ((void)((attr)->create_flags |= (flags)))

/* Resource domains: a thread domain, and a parent domain for each protection domain of its queues */

struct ibvexp_parent {
	struct ibvexp_parent *next;
	struct ibv_pd *pd, *parent;
};

struct ibvexp_res_domain {
	struct ibv_context *context;
	struct ibv_td *td;
	struct ibvexp_parent *parents;
};

static inline struct ibvexp_res_domain *ibvexp_create_res_domain(struct ibv_context *context,
								 struct ibv_td_init_attr *attr)
{
	struct ibv_td_init_attr usual;
	struct ibvexp_res_domain *it = (struct ibvexp_res_domain *)calloc(1, sizeof(*it));

	if (!it)
		return NULL;
	memset(&usual, 0, sizeof(usual));
	it->context = context;
	it->td = ibv_alloc_td(context, attr ? attr : &usual);
	if (!it->td) {
		free(it);
		return NULL;
	}
	return it;
}

/* Behind its queues, and in front of their protection domains. */
static inline int ibvexp_destroy_res_domain(struct ibvexp_res_domain *it)
{
	struct ibvexp_parent *first;
	int error;

	while ((first = it->parents) != NULL) {
		error = ibv_dealloc_pd(first->parent);
		if (error)
			return error;
		it->parents = first->next;
		free(first);
	}
	error = ibv_dealloc_td(it->td);
	if (!error)
		free(it);
	return error;
}

/*
 * The protection domain of a queue in the domain, or pd itself if there is no other:
 * such a queue works, with the locks of one that is in none. Not for several threads.
 */
static inline struct ibv_pd *ibvexp_parent_of(struct ibvexp_res_domain *it, struct ibv_pd *pd)
{
	struct ibv_parent_domain_init_attr attr;
	struct ibvexp_parent *at;

	if (!it || !pd)
		return pd;
	for (at = it->parents; at; at = at->next)
		if (at->pd == pd)
			return at->parent;
	at = (struct ibvexp_parent *)calloc(1, sizeof(*at));
	if (!at)
		return pd;
	memset(&attr, 0, sizeof(attr));
	attr.pd = pd;
	attr.td = it->td;
	at->pd = pd;
	at->parent = ibv_alloc_parent_domain(pd->context, &attr);
	if (!at->parent) {
		free(at);
		return pd;
	}
	at->next = it->parents;
	it->parents = at;
	return at->parent;
}

/* Of a queue pair or a work queue, whose pd is set already. */
#define ibvexp_enter_domain(attr, domain) \
	((void)((attr)->pd = ibvexp_parent_of((domain), (attr)->pd)))

/* Receive-side scaling: the attributes lie in those of the queue pair. */

struct ibvexp_rx_hash_conf {
	uint8_t rx_hash_function;
	uint8_t rx_hash_key_len;
	uint8_t *rx_hash_key;
	uint64_t rx_hash_fields_mask;
	struct ibv_rwq_ind_table *rwq_ind_tbl;
};

/* conf has to be complete. */
static inline void ibvexp_set_rx_hash(struct ibv_qp_init_attr_ex *attr,
				      const struct ibvexp_rx_hash_conf *conf)
{
	attr->rx_hash_conf.rx_hash_function = conf->rx_hash_function;
	attr->rx_hash_conf.rx_hash_key_len = conf->rx_hash_key_len;
	attr->rx_hash_conf.rx_hash_key = conf->rx_hash_key;
	attr->rx_hash_conf.rx_hash_fields_mask = conf->rx_hash_fields_mask;
	attr->rwq_ind_tbl = conf->rwq_ind_tbl;
}

#ifdef __cplusplus
}
#endif

#endif
