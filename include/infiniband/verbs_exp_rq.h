/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Experimental verbs: receiving without a queue pair of one's own. Work
 * queues and receive-side scaling (RSS) over them; shared receive queues and
 * tag matching.
 */
#ifndef INFINIBAND_VERBS_EXP_RQ_H
#define INFINIBAND_VERBS_EXP_RQ_H

#ifndef INFINIBAND_VERBS_EXP_H
#error "include <infiniband/verbs_exp.h>, not its parts"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Work queues
 */

enum ibv_exp_wq_type {
	IBV_EXP_WQT_RQ  = 0,
	IBV_EXP_WQT_SRQ = 1,
};

enum ibv_exp_wq_state {
	IBV_EXP_WQS_RESET   = 0,
	IBV_EXP_WQS_RDY     = 1,
	IBV_EXP_WQS_ERR     = 2,
	IBV_EXP_WQS_UNKNOWN = 3,
};

/* vlan_offloads */
enum ibv_exp_vlan_offloads {
	IBV_EXP_RECEIVE_WQ_CVLAN_STRIP            = 1 << 0,
	IBV_EXP_RECEIVE_WQ_CVLAN_INSERTION        = 1 << 1,
	IBV_EXP_RECEIVE_WQ_VLAN_OFFLOADS_RESERVED = 1 << 2,
};

/* ibv_exp_wq_init_attr.flags */
enum ibv_exp_wq_init_attr_flags {
	IBV_EXP_CREATE_WQ_FLAG_RX_END_PADDING = 1 << 0, /* pad writes to whole cache lines */
	IBV_EXP_CREATE_WQ_FLAG_SCATTER_FCS    = 1 << 1, /* deliver the Ethernet FCS */
	/* wait before dropping for want of buffers */
	IBV_EXP_CREATE_WQ_FLAG_DELAY_DROP     = 1 << 2,
	IBV_EXP_CREATE_WQ_FLAG_RESERVED       = 1 << 3,
};

/* ibv_exp_wq_init_attr.comp_mask */
enum ibv_exp_wq_init_attr_mask {
	IBV_EXP_CREATE_WQ_RES_DOMAIN    = 1 << 0,
	IBV_EXP_CREATE_WQ_MP_RQ         = 1 << 1,
	IBV_EXP_CREATE_WQ_VLAN_OFFLOADS = 1 << 2,
	IBV_EXP_CREATE_WQ_FLAGS         = 1 << 3,
	IBV_EXP_CREATE_WQ_RESERVED      = 1 << 4,
};

enum ibv_exp_mp_rq_shifts {
	IBV_EXP_MP_RQ_NO_SHIFT     = 0,
	IBV_EXP_MP_RQ_2BYTES_SHIFT = 1,
};

/* Multi-packet receive buffers: each takes messages until it is full. */
struct ibv_exp_wq_mp_rq {
	enum ibv_exp_mp_rq_shifts use_shift; /* 2 bytes in front align the IP header */
	uint8_t single_wqe_log_num_of_strides; /* 1 << n strides per buffer */
	uint8_t single_stride_log_num_of_bytes; /* 1 << n bytes per stride */
};

struct ibv_exp_wq_init_attr {
	void *wq_context;
	enum ibv_exp_wq_type wq_type;
	uint32_t max_recv_wr;
	uint32_t max_recv_sge;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_srq *srq; /* for type IBV_EXP_WQT_SRQ */
	uint32_t comp_mask; /* IBV_EXP_CREATE_WQ_* */
	struct ibv_exp_res_domain *res_domain;
	struct ibv_exp_wq_mp_rq mp_rq;
	uint16_t vlan_offloads; /* IBV_EXP_RECEIVE_WQ_* */
	uint64_t flags; /* IBV_EXP_CREATE_WQ_FLAG_* */
};

/* A work queue. Not rdma-core's ibv_wq, whose members differ. */
struct ibv_exp_wq {
	struct ibv_context *context;
	void *wq_context;
	uint32_t handle;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	uint32_t wq_num;
	enum ibv_exp_wq_state state;
	enum ibv_exp_wq_type wq_type;
	uint32_t comp_mask;
};

/*
 * ibv_exp_create_wq - create a work queue
 *
 * It starts in state RESET. Free with ibv_exp_destroy_wq().
 *
 * @wq_init_attr  granted max_recv_wr and max_recv_sge are written back
 *
 * Returns: the queue, or NULL with errno set. ENOSYS: no operation table.
 * EINVAL: comp_mask out of range.
 * Rule: legacy inline and man.
 */
IBVEXP_CALL struct ibv_exp_wq *
ibv_exp_create_wq(struct ibv_context *context,
		  struct ibv_exp_wq_init_attr *wq_init_attr);

/* ibv_exp_wq_attr.attr_mask */
enum ibv_exp_wq_attr_mask {
	IBV_EXP_WQ_ATTR_STATE         = 1 << 0,
	IBV_EXP_WQ_ATTR_CURR_STATE    = 1 << 1,
	IBV_EXP_WQ_ATTR_VLAN_OFFLOADS = 1 << 2,
	IBV_EXP_WQ_ATTR_RESERVED      = 1 << 3,
};

struct ibv_exp_wq_attr {
	uint32_t attr_mask; /* IBV_EXP_WQ_ATTR_* */
	enum ibv_exp_wq_state wq_state;
	enum ibv_exp_wq_state curr_wq_state; /* the state it is in, checked */
	uint16_t vlan_offloads; /* IBV_EXP_RECEIVE_WQ_* */
};

/*
 * ibv_exp_modify_wq - change the state or the offloads of a work queue
 *
 * Threads: not concurrently on the same queue.
 * Returns: 0; a positive errno value, or -EINVAL for an illegal change of
 * state. ENOSYS: no operation table. EINVAL: attr_mask out of range.
 * Rule: legacy inline and man.
 */
IBVEXP_CALL int ibv_exp_modify_wq(struct ibv_exp_wq *wq,
				  struct ibv_exp_wq_attr *wq_attr);

/*
 * ibv_exp_destroy_wq - destroy a work queue
 *
 * Not before the indirection tables that name it.
 *
 * Returns: 0, or a positive errno value. ENOSYS: no operation table.
 * Rule: legacy inline and man.
 */
IBVEXP_CALL int ibv_exp_destroy_wq(struct ibv_exp_wq *wq);

/*
 * Receive-side scaling
 */

enum ibv_exp_ind_table_init_attr_mask {
	IBV_EXP_CREATE_IND_TABLE_RESERVED = 1 << 0,
};

struct ibv_exp_rwq_ind_table_init_attr {
	struct ibv_pd *pd;
	uint32_t log_ind_tbl_size; /* 1 << n entries */
	struct ibv_exp_wq **ind_tbl; /* the entries; a queue may occur more than once */
	uint32_t comp_mask;
};

struct ibv_exp_rwq_ind_table {
	struct ibv_context *context;
	struct ibv_pd *pd;
	int ind_tbl_handle;
	int ind_tbl_num;
	uint32_t comp_mask;
};

/*
 * ibv_exp_create_rwq_ind_table - create a table of work queues
 *
 * Free with ibv_exp_destroy_rwq_ind_table().
 *
 * Returns: the table, or NULL with errno set. ENOSYS: no operation table.
 * Rule: legacy inline and man.
 */
IBVEXP_CALL struct ibv_exp_rwq_ind_table *
ibv_exp_create_rwq_ind_table(struct ibv_context *context,
			     struct ibv_exp_rwq_ind_table_init_attr *init_attr);

/*
 * ibv_exp_destroy_rwq_ind_table - destroy a table of work queues
 *
 * Not before the queue pairs that use it.
 *
 * Returns: 0, or a positive errno value. ENOSYS: no operation table.
 * Rule: legacy inline and man.
 */
IBVEXP_CALL int
ibv_exp_destroy_rwq_ind_table(struct ibv_exp_rwq_ind_table *rwq_ind_table);

/* ibv_exp_rx_hash_conf.rx_hash_function */
enum ibv_exp_rx_hash_function_flags {
	IBV_EXP_RX_HASH_FUNC_TOEPLITZ = 1 << 0,
	IBV_EXP_RX_HASH_FUNC_XOR      = 1 << 1,
};

/*
 * ibv_exp_rx_hash_conf.rx_hash_fields_mask; IPv4 and IPv6, as well as TCP and
 * UDP, exclude each other.
 */
enum ibv_exp_rx_hash_fields {
	IBV_EXP_RX_HASH_SRC_IPV4     = 1 << 0,
	IBV_EXP_RX_HASH_DST_IPV4     = 1 << 1,
	IBV_EXP_RX_HASH_SRC_IPV6     = 1 << 2,
	IBV_EXP_RX_HASH_DST_IPV6     = 1 << 3,
	IBV_EXP_RX_HASH_SRC_PORT_TCP = 1 << 4,
	IBV_EXP_RX_HASH_DST_PORT_TCP = 1 << 5,
	IBV_EXP_RX_HASH_SRC_PORT_UDP = 1 << 6,
	IBV_EXP_RX_HASH_DST_PORT_UDP = 1 << 7,
};

/* Hash the inner headers of tunnelled packets. */
#define IBV_EXP_RX_HASH_INNER (1ULL << 31)

/* What makes a QP a receive-side scaling entry; see ibv_exp_qp_init_attr. */
struct ibv_exp_rx_hash_conf {
	uint8_t rx_hash_function; /* IBV_EXP_RX_HASH_FUNC_* */
	uint8_t rx_hash_key_len; /* bytes (40 for Toeplitz) */
	uint8_t *rx_hash_key;
	uint64_t rx_hash_fields_mask; /* IBV_EXP_RX_HASH_* */
	struct ibv_exp_rwq_ind_table *rwq_ind_tbl;
};

/*
 * Shared receive queues
 */

enum ibv_exp_srq_type {
	IBV_EXP_SRQT_BASIC        = 0x00,
	IBV_EXP_SRQT_XRC          = 0x01,
	IBV_EXP_SRQT_TAG_MATCHING = 0x20,
};

/* ibv_exp_create_srq_attr.comp_mask */
enum ibv_exp_create_srq_comp_mask {
	IBV_EXP_CREATE_SRQ_CQ                = 1 << 0,
	IBV_EXP_CREATE_SRQ_XRCD              = 1 << 1,
	IBV_EXP_CREATE_SRQ_TM                = 1 << 2,
	IBV_EXP_CREATE_SRQ_DC_OFFLOAD_PARAMS = 1 << 3,
	IBV_EXP_CREATE_SRQ_MP_WR             = 1 << 4,
	IBV_EXP_CREATE_SRQ_RESERVED          = 1 << 5,
};

struct ibv_exp_tm_cap {
	uint32_t max_num_tags; /* tags that can wait */
	uint32_t max_ops; /* list operations that can be outstanding */
};

/* How the queue answers rendezvous requests on its own. */
struct ibv_exp_srq_dc_offload_params {
	uint16_t pkey_index;
	enum ibv_mtu path_mtu;
	uint8_t sl;
	uint8_t max_rd_atomic;
	uint8_t min_rnr_timer;
	uint8_t timeout;
	uint8_t retry_cnt;
	uint8_t rnr_retry;
	uint64_t dct_key;
	uint32_t ooo_caps;
	uint32_t comp_mask;
};

/* Multi-packet receive buffers, see ibv_exp_wq_mp_rq. */
struct ibv_exp_mp_wr {
	uint8_t log_num_of_strides; /* 1 << n strides per buffer */
	uint8_t log_stride_size; /* 1 << n bytes per stride */
};

struct ibv_exp_create_srq_attr {
	struct ibv_srq_init_attr base;
	enum ibv_exp_srq_type srq_type;
	struct ibv_pd *pd;
	uint32_t comp_mask; /* IBV_EXP_CREATE_SRQ_* */
	struct ibv_cq *cq;
	struct ibv_xrcd *xrcd;
	struct ibv_exp_tm_cap tm_cap;
	struct ibv_exp_srq_dc_offload_params *dc_offload_params;
	struct ibv_exp_mp_wr mp_wr;
};

/*
 * ibv_exp_create_srq - create a shared receive queue
 *
 * Free with ibv_destroy_srq().
 *
 * @attr  XRC needs cq and xrcd, tag matching needs cq and tm_cap; granted
 *        base.attr.max_wr and max_sge are written back
 *
 * Returns: the queue, or NULL with errno set. ENOSYS: no operation table.
 * EINVAL: comp_mask out of range.
 * Rule: legacy inline.
 */
IBVEXP_CALL struct ibv_srq *
ibv_exp_create_srq(struct ibv_context *context,
		   struct ibv_exp_create_srq_attr *attr);

/*
 * Tag matching
 */

enum ibv_exp_ops_wr_opcode {
	IBV_EXP_WR_TAG_ADD  = 0,
	IBV_EXP_WR_TAG_DEL  = 1,
	IBV_EXP_WR_TAG_SYNC = 2,
};

enum ibv_exp_ops_flags {
	IBV_EXP_OPS_SIGNALED = 1 << 0,
	IBV_EXP_OPS_TM_SYNC  = 1 << 1, /* unexpected_cnt is valid */
};

/* An operation on the list of expected tags. */
struct ibv_exp_ops_wr {
	uint64_t wr_id;
	struct ibv_exp_ops_wr *next;
	enum ibv_exp_ops_wr_opcode opcode;
	int flags; /* IBV_EXP_OPS_* */
	struct {
		uint32_t unexpected_cnt; /* unexpected messages that the program has seen */
		uint32_t handle; /* output of TAG_ADD, input of TAG_DEL */
		struct {
			uint64_t recv_wr_id;
			struct ibv_sge *sg_list;
			int num_sge;
			uint64_t tag;
			uint64_t mask; /* bits of the tag that must agree */
		} add;
	} tm;
};

/*
 * ibv_exp_post_srq_ops - post a list of tag operations
 *
 * @bad_op  receives the first operation that was not posted
 *
 * Returns: 0, or a positive errno value. ENOSYS: no operation table, *bad_op
 * is @op.
 * Rule: legacy inline.
 */
IBVEXP_CALL int ibv_exp_post_srq_ops(struct ibv_srq *srq,
				     struct ibv_exp_ops_wr *op,
				     struct ibv_exp_ops_wr **bad_op);

/*
 * Headers of tagged messages on the wire; all in network byte order.
 */
enum ibv_exp_tmh_op {
	IBV_EXP_TMH_NO_TAG = 0,
	IBV_EXP_TMH_RNDV   = 1,
	IBV_EXP_TMH_FIN    = 2,
	IBV_EXP_TMH_EAGER  = 3,
};

/* In front of every message. */
struct ibv_exp_tmh {
	uint8_t opcode;
	uint8_t reserved[3];
	uint32_t app_ctx; /* for the program */
	uint64_t tag;
};

/* Rendezvous: where the data can be read. */
struct ibv_exp_tmh_rvh {
	uint64_t va;
	uint32_t rkey;
	uint32_t len; /* bytes */
};

/* Rendezvous over DC: how the sender can be reached. */
struct ibv_exp_tmh_ravh {
	uint32_t sl_dct; /* service level, DCT number */
	uint32_t reserved;
	uint64_t dc_access_key;
};

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_VERBS_EXP_RQ_H */
