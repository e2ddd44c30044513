/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Experimental verbs: the dispatching bodies of the calls on queues of every
 * kind. See verbs_exp_inline.h, of which this is the second half.
 */
#ifndef INFINIBAND_VERBS_EXP_INLINE_QUEUES_H
#define INFINIBAND_VERBS_EXP_INLINE_QUEUES_H

#ifndef INFINIBAND_VERBS_EXP_INLINE_H
#error "include <infiniband/verbs_exp.h>, not its parts"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* --- verbs_exp_cq.h ---------------------------------------------------- */

static inline struct ibv_cq *
ibv_exp_create_cq(struct ibv_context *context, int cqe, void *cq_context,
		  struct ibv_comp_channel *channel, int comp_vector,
		  struct ibv_exp_cq_init_attr *attr)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(context, exp_create_cq);
	struct ibv_cq *cq;

	if (!table)
		return (struct ibv_cq *)ibvexp_enosys_null();
	IBV_EXP_RET_NULL_ON_INVALID_COMP_MASK(
		attr->comp_mask, IBV_EXP_CQ_INIT_ATTR_RESERVED1 - 1);

	pthread_mutex_lock(&context->mutex);
	cq = table->exp_create_cq(context, cqe, channel, comp_vector, attr);
	if (cq) {
		cq->context = context;
		cq->channel = channel;
		if (channel)
			++channel->refcnt;
		cq->cq_context = cq_context;
		cq->comp_events_completed = 0;
		cq->async_events_completed = 0;
		pthread_mutex_init(&cq->mutex, NULL);
		pthread_cond_init(&cq->cond, NULL);
	}
	pthread_mutex_unlock(&context->mutex);
	return cq;
}

static inline int ibv_exp_modify_cq(struct ibv_cq *cq,
				    struct ibv_exp_cq_attr *cq_attr,
				    int cq_attr_mask)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(cq->context, lib_exp_modify_cq);

	if (!table)
		return ENOSYS;
	IBV_EXP_RET_EINVAL_ON_INVALID_COMP_MASK(cq_attr->comp_mask,
						IBV_EXP_CQ_ATTR_RESERVED - 1);
	return table->lib_exp_modify_cq(cq, cq_attr, cq_attr_mask);
}

static inline int ibv_exp_poll_cq(struct ibv_cq *ibcq, int num_entries,
				  struct ibv_exp_wc *wc, uint32_t wc_size)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(ibcq->context, drv_exp_ibv_poll_cq);

	if (!table)
		return -ENOSYS;
	return table->drv_exp_ibv_poll_cq(ibcq, num_entries, wc, wc_size);
}

/* --- verbs_exp_qp.h ---------------------------------------------------- */

static inline struct ibv_qp *
ibv_exp_create_qp(struct ibv_context *context,
		  struct ibv_exp_qp_init_attr *qp_init_attr)
{
	struct verbs_context_exp *table;

	/* Nothing experimental in it: the base verb knows the same head. */
	if (qp_init_attr->comp_mask == IBV_EXP_QP_INIT_ATTR_PD)
		return ibv_create_qp(
			qp_init_attr->pd,
			(struct ibv_qp_init_attr *)(void *)qp_init_attr);

	table = verbs_get_exp_ctx_op(context, lib_exp_create_qp);
	if (!table)
		return (struct ibv_qp *)ibvexp_enosys_null();
	IBV_EXP_RET_NULL_ON_INVALID_COMP_MASK(
		qp_init_attr->comp_mask, IBV_EXP_QP_INIT_ATTR_RESERVED1 - 1);
	return table->lib_exp_create_qp(context, qp_init_attr);
}

static inline int ibv_exp_modify_qp(struct ibv_qp *qp,
				    struct ibv_exp_qp_attr *attr,
				    uint64_t exp_attr_mask)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(qp->context, lib_exp_modify_qp);

	if (!table)
		return ibvexp_enosys();
	IBV_EXP_RET_EINVAL_ON_INVALID_COMP_MASK(attr->comp_mask,
						IBV_EXP_QP_ATTR_RESERVED - 1);
	return table->lib_exp_modify_qp(qp, attr, exp_attr_mask);
}

static inline int ibv_exp_post_send(struct ibv_qp *qp,
				    struct ibv_exp_send_wr *wr,
				    struct ibv_exp_send_wr **bad_wr)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(qp->context, drv_exp_post_send);

	if (!table)
		return -ENOSYS;
	/* wr->comp_mask is unset in real programs and must not be looked at. */
	return table->drv_exp_post_send(qp, wr, bad_wr);
}

static inline int ibv_exp_post_task(struct ibv_context *context,
				    struct ibv_exp_task *task,
				    struct ibv_exp_task **bad_task)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(context, lib_exp_post_task);

	if (!table)
		return ENOSYS;
	IBV_EXP_RET_EINVAL_ON_INVALID_COMP_MASK(task->comp_mask,
						IBV_EXP_TASK_RESERVED - 1);
	return table->lib_exp_post_task(context, task, bad_task);
}

static inline struct ibv_exp_dct *
ibv_exp_create_dct(struct ibv_context *context,
		   struct ibv_exp_dct_init_attr *attr)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(context, create_dct);
	struct ibv_exp_dct *dct;

	if (!table)
		return (struct ibv_exp_dct *)ibvexp_enosys_null();
	IBV_EXP_RET_NULL_ON_INVALID_COMP_MASK(
		attr->comp_mask, IBV_EXP_DCT_INIT_ATTR_RESERVED - 1);

	pthread_mutex_lock(&context->mutex);
	dct = table->create_dct(context, attr);
	if (dct)
		dct->context = context;
	pthread_mutex_unlock(&context->mutex);
	return dct;
}

static inline int ibv_exp_destroy_dct(struct ibv_exp_dct *dct)
{
	/* Kept aside: @dct is gone when the lock is released. */
	struct ibv_context *context = dct->context;
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(context, destroy_dct);
	int ret;

	if (!table)
		return ibvexp_enosys();

	pthread_mutex_lock(&context->mutex);
	ret = table->destroy_dct(dct);
	pthread_mutex_unlock(&context->mutex);
	return ret;
}

static inline int ibv_exp_query_dct(struct ibv_exp_dct *dct,
				    struct ibv_exp_dct_attr *attr)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(dct->context, query_dct);
	int ret;

	if (!table)
		return ibvexp_enosys();
	IBV_EXP_RET_EINVAL_ON_INVALID_COMP_MASK(attr->comp_mask,
						IBV_EXP_DCT_ATTR_RESERVED - 1);

	pthread_mutex_lock(&dct->context->mutex);
	ret = table->query_dct(dct, attr);
	pthread_mutex_unlock(&dct->context->mutex);
	return ret;
}

static inline int ibv_exp_arm_dct(struct ibv_exp_dct *dct,
				  struct ibv_exp_arm_attr *attr)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(dct->context, lib_exp_arm_dct);
	int ret;

	if (!table)
		return ibvexp_enosys();
	IBV_EXP_RET_EINVAL_ON_INVALID_COMP_MASK(attr->comp_mask,
						IBV_EXP_ARM_ATTR_RESERVED - 1);

	pthread_mutex_lock(&dct->context->mutex);
	ret = table->lib_exp_arm_dct(dct, attr);
	pthread_mutex_unlock(&dct->context->mutex);
	return ret;
}

static inline int ibv_exp_poll_dc_info(struct ibv_context *context,
				       struct ibv_exp_dc_info_ent *ents,
				       int nent, int port)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(context, drv_exp_poll_dc_info);

	if (!table) {
		errno = ENOSYS;
		return -1;
	}
	return table->drv_exp_poll_dc_info(context, ents, nent, port);
}

/* --- verbs_exp_rq.h ---------------------------------------------------- */

static inline struct ibv_exp_wq *
ibv_exp_create_wq(struct ibv_context *context,
		  struct ibv_exp_wq_init_attr *wq_init_attr)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(context, exp_create_wq);

	if (!table)
		return (struct ibv_exp_wq *)ibvexp_enosys_null();
	IBV_EXP_RET_NULL_ON_INVALID_COMP_MASK(wq_init_attr->comp_mask,
					      IBV_EXP_CREATE_WQ_RESERVED - 1);
	return table->exp_create_wq(context, wq_init_attr);
}

static inline int ibv_exp_modify_wq(struct ibv_exp_wq *wq,
				    struct ibv_exp_wq_attr *wq_attr)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(wq->context, exp_modify_wq);

	if (!table)
		return ENOSYS;
	IBV_EXP_RET_EINVAL_ON_INVALID_COMP_MASK(wq_attr->attr_mask,
						IBV_EXP_WQ_ATTR_RESERVED - 1);
	return table->exp_modify_wq(wq, wq_attr);
}

static inline int ibv_exp_destroy_wq(struct ibv_exp_wq *wq)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(wq->context, exp_destroy_wq);

	if (!table)
		return ENOSYS;
	return table->exp_destroy_wq(wq);
}

static inline struct ibv_exp_rwq_ind_table *
ibv_exp_create_rwq_ind_table(struct ibv_context *context,
			     struct ibv_exp_rwq_ind_table_init_attr *init_attr)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(context, exp_create_rwq_ind_table);

	if (!table)
		return (struct ibv_exp_rwq_ind_table *)ibvexp_enosys_null();
	IBV_EXP_RET_NULL_ON_INVALID_COMP_MASK(
		init_attr->comp_mask, IBV_EXP_CREATE_IND_TABLE_RESERVED - 1);
	return table->exp_create_rwq_ind_table(context, init_attr);
}

static inline int
ibv_exp_destroy_rwq_ind_table(struct ibv_exp_rwq_ind_table *rwq_ind_table)
{
	struct verbs_context_exp *table = verbs_get_exp_ctx_op(
		rwq_ind_table->context, exp_destroy_rwq_ind_table);

	if (!table)
		return ENOSYS;
	return table->exp_destroy_rwq_ind_table(rwq_ind_table);
}

static inline struct ibv_srq *
ibv_exp_create_srq(struct ibv_context *context,
		   struct ibv_exp_create_srq_attr *attr)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(context, exp_create_srq);

	if (!table)
		return (struct ibv_srq *)ibvexp_enosys_null();
	IBV_EXP_RET_NULL_ON_INVALID_COMP_MASK(attr->comp_mask,
					      IBV_EXP_CREATE_SRQ_RESERVED - 1);
	return table->exp_create_srq(context, attr);
}

static inline int ibv_exp_post_srq_ops(struct ibv_srq *srq,
				       struct ibv_exp_ops_wr *op,
				       struct ibv_exp_ops_wr **bad_op)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(srq->context, exp_post_srq_ops);

	if (!table) {
		*bad_op = op;
		return ENOSYS;
	}
	return table->exp_post_srq_ops(srq, op, bad_op);
}

/* --- verbs_exp_flow.h -------------------------------------------------- */

static inline struct ibv_exp_flow *
ibv_exp_create_flow(struct ibv_qp *qp, struct ibv_exp_flow_attr *flow)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(qp->context, lib_exp_ibv_create_flow);

	if (!table)
		return NULL;
	if (flow->reserved) {
		fprintf(stderr,
			"%s: flow attribute: reserved is 0x%llx, must be 0; cleared\n",
			__func__, (unsigned long long)flow->reserved);
		flow->reserved = 0;
	}
	return table->lib_exp_ibv_create_flow(qp, flow);
}

static inline int ibv_exp_destroy_flow(struct ibv_exp_flow *flow_id)
{
	struct verbs_context_exp *table = verbs_get_exp_ctx_op(
		flow_id->context, lib_exp_ibv_destroy_flow);

	if (!table)
		return -ENOSYS;
	return table->lib_exp_ibv_destroy_flow(flow_id);
}

/* --- verbs_exp_intf.h -------------------------------------------------- */

static inline struct ibv_exp_res_domain *
ibv_exp_create_res_domain(struct ibv_context *context,
			  struct ibv_exp_res_domain_init_attr *attr)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(context, exp_create_res_domain);

	if (!table)
		return (struct ibv_exp_res_domain *)ibvexp_enosys_null();
	IBV_EXP_RET_NULL_ON_INVALID_COMP_MASK(attr->comp_mask,
					      IBV_EXP_RES_DOMAIN_RESERVED - 1);
	return table->exp_create_res_domain(context, attr);
}

static inline int
ibv_exp_destroy_res_domain(struct ibv_context *context,
			   struct ibv_exp_res_domain *res_dom,
			   struct ibv_exp_destroy_res_domain_attr *attr)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(context, exp_destroy_res_domain);

	if (!table)
		return ibvexp_enosys();
	if (attr)
		IBV_EXP_RET_EINVAL_ON_INVALID_COMP_MASK(
			attr->comp_mask,
			IBV_EXP_DESTROY_RES_DOMAIN_RESERVED - 1);
	return table->exp_destroy_res_domain(context, res_dom, attr);
}

static inline void *ibv_exp_query_intf(struct ibv_context *context,
				       struct ibv_exp_query_intf_params *params,
				       enum ibv_exp_query_intf_status *status)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(context, exp_query_intf);

	if (!table)
		return ibvexp_enosys_null();
	IBV_EXP_RET_NULL_ON_INVALID_COMP_MASK(params->comp_mask,
					      IBV_EXP_QUERY_INTF_RESERVED - 1);
	return table->exp_query_intf(context, params, status);
}

static inline int
ibv_exp_release_intf(struct ibv_context *context, void *intf,
		     struct ibv_exp_release_intf_params *params)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(context, exp_release_intf);

	if (!table)
		return ibvexp_enosys();
	if (params)
		IBV_EXP_RET_EINVAL_ON_INVALID_COMP_MASK(
			params->comp_mask, IBV_EXP_RELEASE_INTF_RESERVED - 1);
	return table->exp_release_intf(context, intf, params);
}

/* --- verbs_exp_ec.h ---------------------------------------------------- */

static inline struct ibv_exp_ec_calc *
ibv_exp_alloc_ec_calc(struct ibv_pd *pd, struct ibv_exp_ec_calc_init_attr *attr)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(pd->context, alloc_ec_calc);

	if (!table)
		return (struct ibv_exp_ec_calc *)ibvexp_enosys_null();
	IBV_EXP_RET_NULL_ON_INVALID_COMP_MASK(
		attr->comp_mask, IBV_EXP_EC_CALC_INIT_ATTR_RESERVED - 1);
	return table->alloc_ec_calc(pd, attr);
}

static inline void ibv_exp_dealloc_ec_calc(struct ibv_exp_ec_calc *calc)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(calc->pd->context, dealloc_ec_calc);

	if (!table)
		errno = ENOSYS;
	else
		table->dealloc_ec_calc(calc);
}

static inline int ibv_exp_ec_encode_async(struct ibv_exp_ec_calc *calc,
					  struct ibv_exp_ec_mem *ec_mem,
					  struct ibv_exp_ec_comp *ec_comp)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(calc->pd->context, ec_encode_async);

	if (!table)
		return ENOSYS;
	return table->ec_encode_async(calc, ec_mem, ec_comp);
}

static inline int ibv_exp_ec_encode_sync(struct ibv_exp_ec_calc *calc,
					 struct ibv_exp_ec_mem *ec_mem)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(calc->pd->context, ec_encode_sync);

	if (!table)
		return ENOSYS;
	return table->ec_encode_sync(calc, ec_mem);
}

static inline int ibv_exp_ec_decode_async(struct ibv_exp_ec_calc *calc,
					  struct ibv_exp_ec_mem *ec_mem,
					  uint8_t *erasures,
					  uint8_t *decode_matrix,
					  struct ibv_exp_ec_comp *ec_comp)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(calc->pd->context, ec_decode_async);

	if (!table)
		return ENOSYS;
	return table->ec_decode_async(calc, ec_mem, erasures, decode_matrix,
				      ec_comp);
}

static inline int ibv_exp_ec_decode_sync(struct ibv_exp_ec_calc *calc,
					 struct ibv_exp_ec_mem *ec_mem,
					 uint8_t *erasures,
					 uint8_t *decode_matrix)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(calc->pd->context, ec_decode_sync);

	if (!table)
		return ENOSYS;
	return table->ec_decode_sync(calc, ec_mem, erasures, decode_matrix);
}

static inline int ibv_exp_ec_update_async(struct ibv_exp_ec_calc *calc,
					  struct ibv_exp_ec_mem *ec_mem,
					  uint8_t *data_updates,
					  uint8_t *code_updates,
					  struct ibv_exp_ec_comp *ec_comp)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(calc->pd->context, ec_update_async);

	if (!table)
		return -ENOSYS;
	return table->ec_update_async(calc, ec_mem, data_updates, code_updates,
				      ec_comp);
}

static inline int ibv_exp_ec_update_sync(struct ibv_exp_ec_calc *calc,
					 struct ibv_exp_ec_mem *ec_mem,
					 uint8_t *data_updates,
					 uint8_t *code_updates)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(calc->pd->context, ec_update_sync);

	if (!table)
		return -ENOSYS;
	return table->ec_update_sync(calc, ec_mem, data_updates, code_updates);
}

static inline int ibv_exp_ec_poll(struct ibv_exp_ec_calc *calc, int n)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(calc->pd->context, ec_poll);

	if (!table)
		return ENOSYS;
	return table->ec_poll(calc, n);
}

static inline int ibv_exp_ec_encode_send(struct ibv_exp_ec_calc *calc,
					 struct ibv_exp_ec_mem *ec_mem,
					 struct ibv_exp_ec_stripe *data_stripes,
					 struct ibv_exp_ec_stripe *code_stripes)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(calc->pd->context, ec_encode_send);

	if (!table)
		return -ENOSYS;
	return table->ec_encode_send(calc, ec_mem, data_stripes, code_stripes);
}

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_VERBS_EXP_INLINE_QUEUES_H */
