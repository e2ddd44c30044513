/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Experimental verbs: the dispatching bodies of the calls, documented where
 * they are declared. Here those on devices and memory; the others are in
 * verbs_exp_inline_queues.h.
 *
 * What differs from call to call is deliberate: which of slot test and
 * comp_mask test comes first, and how a missing slot is reported. Compiled
 * into old programs for good, these details are part of the binary
 * interface, so a recompiled program must see the same ones. Where errno is
 * not set below, the original did not set it.
 */
#ifndef INFINIBAND_VERBS_EXP_INLINE_H
#define INFINIBAND_VERBS_EXP_INLINE_H

#ifndef INFINIBAND_VERBS_EXP_H
#error "include <infiniband/verbs_exp.h>, not its parts"
#endif

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__STRICT_ANSI__) && !defined(__cplusplus)
/* Hidden by <stdlib.h> from programs that ask for nothing but ISO C. */
extern int setenv(const char *name, const char *value, int overwrite);
#endif

/* errno = ENOSYS and its value, for the calls that give both. */
static inline int ibvexp_enosys(void)
{
	errno = ENOSYS;
	return ENOSYS;
}

static inline void *ibvexp_enosys_null(void)
{
	errno = ENOSYS;
	return NULL;
}

/*
 * The creating calls cast in two steps, (type *)ibvexp_enosys_null(), because
 * C++ does not convert from void *.
 */

/* --- verbs_exp_device.h ------------------------------------------------ */

static inline int ibv_exp_query_device(struct ibv_context *context,
				       struct ibv_exp_device_attr *attr)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(context, lib_exp_query_device);

	if (!table)
		return ENOSYS;
	/* All 32 bits of comp_mask have a meaning, only the second is bounded. */
	if (attr->comp_mask & (uint32_t)IBV_EXP_DEVICE_ATTR_COMP_MASK_2)
		IBV_EXP_RET_EINVAL_ON_INVALID_COMP_MASK(
			attr->comp_mask_2, IBV_EXP_DEVICE_ATTR_RESERVED_2 - 1);
	return table->lib_exp_query_device(context, attr);
}

static inline struct ibv_context *
ibv_exp_open_device(struct ibv_device *device,
		    struct ibv_exp_open_device_attr *attr)
{
	struct verbs_context_exp *table;
	struct ibv_context *context;
	int reason = ENOSYS;

	if (!attr->comp_mask) {
		errno = EINVAL;
		return NULL;
	}
	IBV_EXP_RET_NULL_ON_INVALID_COMP_MASK(
		attr->comp_mask, IBV_EXP_SET_CONTEXT_ATTR_RESERVED - 1);

	context = ibv_open_device(device);
	if (!context)
		return NULL;

	table = verbs_get_exp_ctx_op(context, drv_exp_set_context_attr);
	if (table) {
		if (!table->drv_exp_set_context_attr(context, attr))
			return context;
		/* The slot says why in errno; closing may not overwrite it. */
		reason = errno;
	}
	ibv_close_device(context);
	errno = reason;
	return NULL;
}

static inline void *ibv_exp_get_provider_func(struct ibv_context *context,
					      enum ibv_exp_func_name name)
{
	struct verbs_context_exp *table;
	void *func = NULL;

	/* Copied as bytes: ISO C has no cast from function to object pointer. */
	switch (name) {
	case IBV_EXP_POST_SEND_FUNC:
		table = verbs_get_exp_ctx_op(context, drv_exp_post_send);
		if (table)
			memcpy(&func, &table->drv_exp_post_send, sizeof(func));
		break;
	case IBV_EXP_POLL_CQ_FUNC:
		table = verbs_get_exp_ctx_op(context, drv_exp_ibv_poll_cq);
		if (table)
			memcpy(&func, &table->drv_exp_ibv_poll_cq, sizeof(func));
		break;
	case IBV_POST_SEND_FUNC:
		memcpy(&func, &context->ops.post_send, sizeof(func));
		break;
	case IBV_POLL_CQ_FUNC:
		memcpy(&func, &context->ops.poll_cq, sizeof(func));
		break;
	case IBV_POST_RECV_FUNC:
		memcpy(&func, &context->ops.post_recv, sizeof(func));
		break;
	default:
		break;
	}
	return func ? func : ibvexp_enosys_null();
}

/*
 * ibv_query_port as a symbol of the library, which fills the 48 legacy bytes
 * whatever the size of today's ibv_port_attr. In parentheses, because
 * <infiniband/verbs.h> has a macro of the name that takes another route. The
 * last two bytes were reserved once and are left alone by libraries of that
 * time.
 */
static inline int
ibvexp_query_port_48(struct ibv_context *context, uint8_t port_num,
		     struct ibvexp_port_attr_48 *port_attr)
{
	port_attr->link_layer = IBV_LINK_LAYER_UNSPECIFIED;
	port_attr->reserved = 0;
	return (ibv_query_port)(
		context, port_num,
		(struct _compat_ibv_port_attr *)(void *)port_attr);
}

static inline int ibv_exp_query_port(struct ibv_context *context,
				     uint8_t port_num,
				     struct ibv_exp_port_attr *port_attr)
{
	struct verbs_context_exp *table;

	if (!port_attr->comp_mask)
		return ibvexp_query_port_48(context, port_num,
					    &port_attr->port_attr);

	if (!(port_attr->comp_mask & IBV_EXP_QUERY_PORT_ATTR_MASK1) ||
	    (port_attr->comp_mask & ~(uint32_t)IBV_EXP_QUERY_PORT_ATTR_MASKS) ||
	    (port_attr->mask1 & ~(uint32_t)IBV_EXP_QUERY_PORT_MASK)) {
		errno = EINVAL;
		return -EINVAL;
	}

	table = verbs_get_exp_ctx_op(context, lib_exp_query_port);
	if (table)
		return table->lib_exp_query_port(context, port_num, port_attr);

	if (port_attr->comp_mask == IBV_EXP_QUERY_PORT_ATTR_MASK1 &&
	    !(port_attr->mask1 & ~(uint32_t)IBV_EXP_QUERY_PORT_STD_MASK))
		return ibvexp_query_port_48(context, port_num,
					    &port_attr->port_attr);
	return -ibvexp_enosys();
}

static inline int ibv_exp_query_gid_attr(struct ibv_context *context,
					 uint8_t port_num, unsigned int index,
					 struct ibv_exp_gid_attr *attr)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(context, exp_query_gid_attr);

	if (!table)
		return ENOSYS;
	IBV_EXP_RET_EINVAL_ON_INVALID_COMP_MASK(
		attr->comp_mask, IBV_EXP_QUERY_GID_ATTR_RESERVED - 1);
	return table->exp_query_gid_attr(context, port_num, index, attr);
}

static inline int ibv_exp_query_values(struct ibv_context *context,
				       int q_values,
				       struct ibv_exp_values *values)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(context, drv_exp_query_values);

	if (!table)
		return -ibvexp_enosys();
	IBV_EXP_RET_EINVAL_ON_INVALID_COMP_MASK(values->comp_mask,
						IBV_EXP_VALUES_RESERVED - 1);
	return table->drv_exp_query_values(context, q_values, values);
}

static inline uint64_t
ibv_exp_cqe_ts_to_ns(struct ibv_exp_clock_info *clock_info, uint64_t ts)
{
	uint64_t ahead, behind;

	IBV_EXP_RET_ZERO_ON_INVALID_COMP_MASK(clock_info->comp_mask,
					      IBV_EXP_CLOCK_INFO_RESERVED - 1);

	/* Distances on a counter that wraps at mask: the shorter one is meant. */
	ahead = (ts - clock_info->cycles) & clock_info->mask;
	if (ahead <= clock_info->mask / 2)
		return clock_info->nsec +
		       ((ahead * clock_info->mult + clock_info->frac) >>
			clock_info->shift);

	behind = (clock_info->cycles - ts) & clock_info->mask;
	return clock_info->nsec -
	       ((behind * clock_info->mult - clock_info->frac) >>
		clock_info->shift);
}

static inline int ibv_exp_use_priv_env(struct ibv_context *context)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(context, lib_exp_use_priv_env);

	if (!table) {
		errno = ENOSYS;
		return -1;
	}
	return table->lib_exp_use_priv_env(context);
}

static inline int ibv_exp_setenv(struct ibv_context *context, const char *name,
				 const char *value, int overwrite)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(context, lib_exp_setenv);

	if (!table)
		return setenv(name, value, overwrite);
	return table->lib_exp_setenv(context, name, value, overwrite);
}

/* --- verbs_exp_mr.h ---------------------------------------------------- */

static inline struct ibv_mr *ibv_exp_reg_mr(struct ibv_exp_reg_mr_in *in)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(in->pd->context, lib_exp_reg_mr);

	if (!table)
		return (struct ibv_mr *)ibvexp_enosys_null();
	IBV_EXP_RET_NULL_ON_INVALID_COMP_MASK(in->comp_mask,
					      IBV_EXP_REG_MR_RESERVED - 1);
	return table->lib_exp_reg_mr(in);
}

static inline struct ibv_mr *
ibv_exp_reg_shared_mr(struct ibv_exp_reg_shared_mr_in *mr_in)
{
	/* Hard-wired since MLNX_OFED 4.3, although the slot still exists. */
	(void)mr_in;
	return (struct ibv_mr *)ibvexp_enosys_null();
}

static inline int ibv_exp_prefetch_mr(struct ibv_mr *mr,
				      struct ibv_exp_prefetch_attr *attr)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(mr->context, lib_exp_prefetch_mr);

	if (!table)
		return ibvexp_enosys();
	IBV_EXP_RET_EINVAL_ON_INVALID_COMP_MASK(
		attr->comp_mask, IBV_EXP_PREFETCH_MR_RESERVED - 1);
	return table->lib_exp_prefetch_mr(mr, attr);
}

static inline struct ibv_mr *ibv_exp_create_mr(struct ibv_exp_create_mr_in *in)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(in->pd->context, lib_exp_create_mr);
	struct ibv_mr *mr;

	if (!table)
		return (struct ibv_mr *)ibvexp_enosys_null();
	IBV_EXP_RET_NULL_ON_INVALID_COMP_MASK(
		in->comp_mask, IBV_EXP_CREATE_MR_IN_RESERVED - 1);
	mr = table->lib_exp_create_mr(in);
	if (mr)
		mr->pd = in->pd;
	return mr;
}

static inline int ibv_exp_query_mkey(struct ibv_mr *mr,
				     struct ibv_exp_mkey_attr *mkey_attr)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(mr->context, lib_exp_query_mkey);

	if (!table)
		return ibvexp_enosys();
	IBV_EXP_RET_EINVAL_ON_INVALID_COMP_MASK(mkey_attr->comp_mask,
						IBV_EXP_MKEY_ATTR_RESERVED - 1);
	return table->lib_exp_query_mkey(mr, mkey_attr);
}

static inline struct ibv_exp_mkey_list_container *
ibv_exp_alloc_mkey_list_memory(struct ibv_exp_mkey_list_container_attr *attr)
{
	struct verbs_context_exp *table = verbs_get_exp_ctx_op(
		attr->pd->context, lib_exp_alloc_mkey_list_memory);

	if (!table)
		return (struct ibv_exp_mkey_list_container *)
			ibvexp_enosys_null();
	IBV_EXP_RET_NULL_ON_INVALID_COMP_MASK(
		attr->comp_mask, IBV_EXP_MKEY_LIST_CONTAINER_RESERVED - 1);
	return table->lib_exp_alloc_mkey_list_memory(attr);
}

static inline int
ibv_exp_dealloc_mkey_list_memory(struct ibv_exp_mkey_list_container *mem)
{
	struct verbs_context_exp *table = verbs_get_exp_ctx_op(
		mem->context, lib_exp_dealloc_mkey_list_memory);

	if (!table)
		return ibvexp_enosys();
	return table->lib_exp_dealloc_mkey_list_memory(mem);
}

static inline int ibv_exp_bind_mw(struct ibv_exp_mw_bind *mw_bind)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(mw_bind->mw->context, lib_exp_bind_mw);

	if (!table)
		return ibvexp_enosys();
	IBV_EXP_RET_EINVAL_ON_INVALID_COMP_MASK(mw_bind->comp_mask,
						IBV_EXP_BIND_MW_RESERVED - 1);
	return table->lib_exp_bind_mw(mw_bind);
}

static inline struct ibv_exp_dm *
ibv_exp_alloc_dm(struct ibv_context *context,
		 struct ibv_exp_alloc_dm_attr *attr)
{
	struct verbs_context_exp *table;

	IBV_EXP_RET_NULL_ON_INVALID_COMP_MASK(
		attr->comp_mask, IBV_EXP_ALLOC_DM_ATTR_RESERVED - 1);
	table = verbs_get_exp_ctx_op(context, exp_alloc_dm);
	if (!table)
		return NULL;
	return table->exp_alloc_dm(context, attr);
}

static inline int ibv_exp_free_dm(struct ibv_exp_dm *dm)
{
	struct verbs_context_exp *table =
		verbs_get_exp_ctx_op(dm->context, exp_free_dm);

	if (!table)
		return ENOSYS;
	return table->exp_free_dm(dm);
}

static inline int ibv_exp_memcpy_dm(struct ibv_exp_dm *dm,
				    struct ibv_exp_memcpy_dm_attr *attr)
{
	struct verbs_context_exp *table;

	IBV_EXP_RET_EINVAL_ON_INVALID_COMP_MASK(
		attr->comp_mask, IBV_EXP_DM_CPY_COMP_MASK_RESERVED - 1);
	table = verbs_get_exp_ctx_op(dm->context, exp_memcpy_dm);
	if (!table)
		return ENOSYS;
	return table->exp_memcpy_dm(dm, attr);
}

#ifdef __cplusplus
}
#endif

#include <infiniband/verbs_exp_inline_queues.h>

#endif /* INFINIBAND_VERBS_EXP_INLINE_H */
