/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Experimental verbs: the operation table and how a context leads to it.
 *
 * The table lies at lower addresses than the context and is found by its end:
 *
 *     table_end = context - (size_word - sizeof(struct ibv_context))
 *
 * where size_word is the verbs_context's sz, 8 bytes in front of the context.
 * The table grew only at its beginning, so a slot keeps its distance from the
 * end in all releases: a program finds it whether its own table is shorter or
 * longer than the library's. That the library's table reaches down to a slot
 * is read from the table's last word.
 */
#ifndef INFINIBAND_VERBS_EXP_TABLE_H
#define INFINIBAND_VERBS_EXP_TABLE_H

#ifndef INFINIBAND_VERBS_EXP_H
#error "include <infiniband/verbs_exp.h>, not its parts"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
 * lib_ slots are called from outside, drv_ slots are their inner halves in
 * the original; a slot with neither prefix is called directly. Parameters are
 * those of the call of the same name, but exp_create_cq is not given the
 * cq_context: the caller stores it.
 */
struct verbs_context_exp {
	struct ibv_exp_dm *(*exp_alloc_dm)(
		struct ibv_context *, struct ibv_exp_alloc_dm_attr *);
	int (*exp_free_dm)(struct ibv_exp_dm *);
	int (*exp_memcpy_dm)(
		struct ibv_exp_dm *, struct ibv_exp_memcpy_dm_attr *);
	int (*exp_post_srq_ops)(
		struct ibv_srq *, struct ibv_exp_ops_wr *,
		struct ibv_exp_ops_wr **);
	struct ibv_srq *(*exp_create_srq)(
		struct ibv_context *, struct ibv_exp_create_srq_attr *);
	int (*drv_exp_set_context_attr)(
		struct ibv_context *, struct ibv_exp_open_device_attr *);
	struct ibv_ah *(*drv_exp_ibv_create_kah)(
		struct ibv_pd *, struct ibv_exp_ah_attr *);
	int (*exp_peer_peek_cq)(struct ibv_cq *, struct ibv_exp_peer_peek *);
	int (*exp_peer_abort_peek_cq)(
		struct ibv_cq *, struct ibv_exp_peer_abort_peek *);
	int (*exp_peer_commit_qp)(
		struct ibv_qp *, struct ibv_exp_peer_commit *);
	int (*exp_rollback_send)(
		struct ibv_qp *, struct ibv_exp_rollback_ctx *);
	int (*ec_update_sync)(
		struct ibv_exp_ec_calc *, struct ibv_exp_ec_mem *, uint8_t *,
		uint8_t *);
	int (*ec_update_async)(
		struct ibv_exp_ec_calc *, struct ibv_exp_ec_mem *, uint8_t *,
		uint8_t *, struct ibv_exp_ec_comp *);
	struct ibv_exp_ec_calc *(*alloc_ec_calc)(
		struct ibv_pd *, struct ibv_exp_ec_calc_init_attr *);
	void (*dealloc_ec_calc)(struct ibv_exp_ec_calc *);
	int (*ec_encode_async)(
		struct ibv_exp_ec_calc *, struct ibv_exp_ec_mem *,
		struct ibv_exp_ec_comp *);
	int (*ec_encode_sync)(
		struct ibv_exp_ec_calc *, struct ibv_exp_ec_mem *);
	int (*ec_decode_async)(
		struct ibv_exp_ec_calc *, struct ibv_exp_ec_mem *, uint8_t *,
		uint8_t *, struct ibv_exp_ec_comp *);
	int (*ec_decode_sync)(
		struct ibv_exp_ec_calc *, struct ibv_exp_ec_mem *, uint8_t *,
		uint8_t *);
	int (*ec_poll)(struct ibv_exp_ec_calc *, int);
	int (*ec_encode_send)(
		struct ibv_exp_ec_calc *, struct ibv_exp_ec_mem *,
		struct ibv_exp_ec_stripe *, struct ibv_exp_ec_stripe *);
	int (*exp_query_gid_attr)(
		struct ibv_context *, uint8_t, unsigned int,
		struct ibv_exp_gid_attr *);
	int (*exp_destroy_rwq_ind_table)(struct ibv_exp_rwq_ind_table *);
	struct ibv_exp_rwq_ind_table *(*exp_create_rwq_ind_table)(
		struct ibv_context *, struct ibv_exp_rwq_ind_table_init_attr *);
	int (*exp_destroy_wq)(struct ibv_exp_wq *);
	int (*exp_modify_wq)(struct ibv_exp_wq *, struct ibv_exp_wq_attr *);
	struct ibv_exp_wq *(*exp_create_wq)(
		struct ibv_context *, struct ibv_exp_wq_init_attr *);
	int (*drv_exp_poll_dc_info)(
		struct ibv_context *, struct ibv_exp_dc_info_ent *, int, int);
	void *(*exp_query_intf)(
		struct ibv_context *, struct ibv_exp_query_intf_params *,
		enum ibv_exp_query_intf_status *);
	int (*exp_release_intf)(
		struct ibv_context *, void *,
		struct ibv_exp_release_intf_params *);
	struct ibv_exp_res_domain *(*exp_create_res_domain)(
		struct ibv_context *, struct ibv_exp_res_domain_init_attr *);
	int (*exp_destroy_res_domain)(
		struct ibv_context *, struct ibv_exp_res_domain *,
		struct ibv_exp_destroy_res_domain_attr *);
	int (*lib_exp_use_priv_env)(struct ibv_context *);
	int (*lib_exp_setenv)(
		struct ibv_context *, const char *, const char *, int);
	struct verbs_environment *venv; /* data, not a function */
	int (*drv_exp_dereg_mr)(struct ibv_mr *, struct ibv_exp_dereg_out *);
	/* Up to MLNX_OFED 3.4: exp_rereg_mr and drv_exp_rereg_mr. */
	void (*ABI_placeholder2)(void);
	void (*ABI_placeholder1)(void);
	int (*drv_exp_prefetch_mr)(
		struct ibv_mr *, struct ibv_exp_prefetch_attr *);
	int (*lib_exp_prefetch_mr)(
		struct ibv_mr *, struct ibv_exp_prefetch_attr *);
	struct ibv_exp_mkey_list_container *(*drv_exp_alloc_mkey_list_memory)(
		struct ibv_exp_mkey_list_container_attr *);
	struct ibv_exp_mkey_list_container *(*lib_exp_alloc_mkey_list_memory)(
		struct ibv_exp_mkey_list_container_attr *);
	int (*drv_exp_dealloc_mkey_list_memory)(
		struct ibv_exp_mkey_list_container *);
	int (*lib_exp_dealloc_mkey_list_memory)(
		struct ibv_exp_mkey_list_container *);
	int (*drv_exp_query_mkey)(struct ibv_mr *, struct ibv_exp_mkey_attr *);
	int (*lib_exp_query_mkey)(struct ibv_mr *, struct ibv_exp_mkey_attr *);
	struct ibv_mr *(*drv_exp_create_mr)(struct ibv_exp_create_mr_in *);
	struct ibv_mr *(*lib_exp_create_mr)(struct ibv_exp_create_mr_in *);
	int (*drv_exp_arm_dct)(struct ibv_exp_dct *, struct ibv_exp_arm_attr *);
	int (*lib_exp_arm_dct)(struct ibv_exp_dct *, struct ibv_exp_arm_attr *);
	int (*drv_exp_bind_mw)(struct ibv_exp_mw_bind *);
	int (*lib_exp_bind_mw)(struct ibv_exp_mw_bind *);
	int (*drv_exp_post_send)(
		struct ibv_qp *, struct ibv_exp_send_wr *,
		struct ibv_exp_send_wr **);
	struct ibv_mr *(*drv_exp_reg_mr)(struct ibv_exp_reg_mr_in *);
	struct ibv_mr *(*lib_exp_reg_mr)(struct ibv_exp_reg_mr_in *);
	struct ibv_ah *(*drv_exp_ibv_create_ah)(
		struct ibv_pd *, struct ibv_exp_ah_attr *);
	int (*drv_exp_query_values)(
		struct ibv_context *, int, struct ibv_exp_values *);
	struct ibv_cq *(*exp_create_cq)(
		struct ibv_context *, int, struct ibv_comp_channel *, int,
		struct ibv_exp_cq_init_attr *);
	int (*drv_exp_ibv_poll_cq)(
		struct ibv_cq *, int, struct ibv_exp_wc *, uint32_t);
	void *(*drv_exp_get_legacy_xrc)(struct ibv_srq *);
	void (*drv_exp_set_legacy_xrc)(struct ibv_srq *, void *);
	struct ibv_mr *(*drv_exp_ibv_reg_shared_mr)(
		struct ibv_exp_reg_shared_mr_in *);
	struct ibv_mr *(*lib_exp_ibv_reg_shared_mr)(
		struct ibv_exp_reg_shared_mr_in *);
	int (*drv_exp_modify_qp)(
		struct ibv_qp *, struct ibv_exp_qp_attr *, uint64_t);
	int (*lib_exp_modify_qp)(
		struct ibv_qp *, struct ibv_exp_qp_attr *, uint64_t);
	int (*drv_exp_post_task)(
		struct ibv_context *, struct ibv_exp_task *,
		struct ibv_exp_task **);
	int (*lib_exp_post_task)(
		struct ibv_context *, struct ibv_exp_task *,
		struct ibv_exp_task **);
	int (*drv_exp_modify_cq)(
		struct ibv_cq *, struct ibv_exp_cq_attr *, int);
	int (*lib_exp_modify_cq)(
		struct ibv_cq *, struct ibv_exp_cq_attr *, int);
	int (*drv_exp_ibv_destroy_flow)(struct ibv_exp_flow *);
	int (*lib_exp_ibv_destroy_flow)(struct ibv_exp_flow *);
	struct ibv_exp_flow *(*drv_exp_ibv_create_flow)(
		struct ibv_qp *, struct ibv_exp_flow_attr *);
	struct ibv_exp_flow *(*lib_exp_ibv_create_flow)(
		struct ibv_qp *, struct ibv_exp_flow_attr *);
	int (*drv_exp_query_port)(
		struct ibv_context *, uint8_t, struct ibv_exp_port_attr *);
	int (*lib_exp_query_port)(
		struct ibv_context *, uint8_t, struct ibv_exp_port_attr *);
	struct ibv_exp_dct *(*create_dct)(
		struct ibv_context *, struct ibv_exp_dct_init_attr *);
	int (*destroy_dct)(struct ibv_exp_dct *);
	int (*query_dct)(struct ibv_exp_dct *, struct ibv_exp_dct_attr *);
	int (*drv_exp_query_device)(
		struct ibv_context *, struct ibv_exp_device_attr *);
	int (*lib_exp_query_device)(
		struct ibv_context *, struct ibv_exp_device_attr *);
	struct ibv_qp *(*drv_exp_create_qp)(
		struct ibv_context *, struct ibv_exp_qp_init_attr *);
	struct ibv_qp *(*lib_exp_create_qp)(
		struct ibv_context *, struct ibv_exp_qp_init_attr *);
	/* Bytes of the library's table, this word included. Stays last. */
	size_t sz;
};

/* The two words of a verbs_context directly in front of its ibv_context. */
struct ibvexp_context_words {
	uint64_t has_comp_mask; /* enum verbs_context_mask */
	size_t sz;
};

/*
 * verbs_get_exp_ctx - find the operation table of a context
 *
 * The result is computed for the table of this header. If the library's is
 * shorter, it points in front of the library's: check with
 * verbs_get_exp_ctx_op() before use.
 *
 * Returns: the table, or NULL if none is attached.
 * Rule: legacy inline.
 */
static inline struct verbs_context_exp *
verbs_get_exp_ctx(struct ibv_context *ctx)
{
	const struct ibvexp_context_words *words;
	uintptr_t table_end;

	if (!ctx || ctx->abi_compat != __VERBS_ABI_IS_EXTENDED)
		return NULL;

	words = (const struct ibvexp_context_words *)(const void *)ctx - 1;
	if (!(words->has_comp_mask & VERBS_CONTEXT_EXP))
		return NULL;

	/*
	 * In integers: the table may lie above the context, when sz is chosen
	 * modulo 2^64, and is never part of the same object.
	 */
	table_end = (uintptr_t)ctx - (words->sz - sizeof(struct ibv_context));
	return (struct verbs_context_exp *)(table_end -
					    sizeof(struct verbs_context_exp));
}

/* Find the table if it has a function in the slot at @offset, else NULL. */
static inline struct verbs_context_exp *
ibvexp_table_with_slot(struct ibv_context *ctx, size_t offset)
{
	struct verbs_context_exp *table = verbs_get_exp_ctx(ctx);
	void *slot;

	if (!table || table->sz < sizeof(*table) - offset)
		return NULL;
	memcpy(&slot, (const char *)table + offset, sizeof(slot));
	return slot ? table : NULL;
}

/* The table of @ctx if it has a function in slot @op, else NULL. */
#define verbs_get_exp_ctx_op(ctx, op)                                          \
	ibvexp_table_with_slot((ctx), offsetof(struct verbs_context_exp, op))

/* Fill slot @op of table @_vctx with @ptr, if the table has the slot. */
#define verbs_set_exp_ctx_op(_vctx, op, ptr)                                   \
	do {                                                                   \
		struct verbs_context_exp *ibvexp_vctx = (_vctx);               \
		if (ibvexp_vctx &&                                             \
		    ibvexp_vctx->sz >=                                         \
			    sizeof(*ibvexp_vctx) -                             \
				    offsetof(struct verbs_context_exp, op))    \
			ibvexp_vctx->op = (ptr);                               \
	} while (0)

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_VERBS_EXP_TABLE_H */
