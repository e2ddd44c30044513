/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Experimental verbs: queue pairs, work requests to them, tasks over several
 * of them, and targets of the dynamically connected (DC) transport.
 */
#ifndef INFINIBAND_VERBS_EXP_QP_H
#define INFINIBAND_VERBS_EXP_QP_H

#ifndef INFINIBAND_VERBS_EXP_H
#error "include <infiniband/verbs_exp.h>, not its parts"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Creation
 */

/*
 * ibv_exp_qp_init_attr.comp_mask. IBV_EXP_QP_INIT_ATTR_RESERVED is from
 * before the later bits; RESERVED1 is the bound.
 */
enum ibv_exp_qp_init_attr_comp_mask {
	IBV_EXP_QP_INIT_ATTR_PD             = 1 << 0,
	IBV_EXP_QP_INIT_ATTR_XRCD           = 1 << 1,
	IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS   = 1 << 2, /* exp_create_flags */
	IBV_EXP_QP_INIT_ATTR_INL_RECV       = 1 << 3,
	IBV_EXP_QP_INIT_ATTR_QPG            = 1 << 4,
	IBV_EXP_QP_INIT_ATTR_ATOMICS_ARG    = 1 << 5, /* max_atomic_arg */
	IBV_EXP_QP_INIT_ATTR_MAX_INL_KLMS   = 1 << 6, /* max_inl_send_klms */
	IBV_EXP_QP_INIT_ATTR_RESERVED       = 1 << 7,
	IBV_EXP_QP_INIT_ATTR_RES_DOMAIN     = 1 << 7,
	IBV_EXP_QP_INIT_ATTR_RX_HASH        = 1 << 8,
	IBV_EXP_QP_INIT_ATTR_PORT           = 1 << 9,
	IBV_EXP_QP_INIT_ATTR_PEER_DIRECT    = 1 << 10,
	IBV_EXP_QP_INIT_ATTR_MAX_TSO_HEADER = 1 << 11,
	IBV_EXP_QP_INIT_ATTR_ASSOCIATED_QPN = 1 << 12,
	IBV_EXP_QP_INIT_ATTR_RESERVED1      = 1 << 13,
};

/* ibv_exp_qp_init_attr.exp_create_flags; not the bits of ibv_qp_create_flags */
enum ibv_exp_qp_create_flags {
	IBV_EXP_QP_CREATE_CROSS_CHANNEL            = 1 << 2,
	/* sends wait for IBV_EXP_WR_SEND_ENABLE */
	IBV_EXP_QP_CREATE_MANAGED_SEND             = 1 << 3,
	/* receives wait for IBV_EXP_WR_RECV_ENABLE */
	IBV_EXP_QP_CREATE_MANAGED_RECV             = 1 << 4,
	IBV_EXP_QP_CREATE_IGNORE_SQ_OVERFLOW       = 1 << 6,
	IBV_EXP_QP_CREATE_IGNORE_RQ_OVERFLOW       = 1 << 7,
	/* the program swaps big-endian replies */
	IBV_EXP_QP_CREATE_ATOMIC_BE_REPLY          = 1 << 8,
	IBV_EXP_QP_CREATE_UMR                      = 1 << 9, /* will be used for IBV_EXP_WR_UMR_* */
	IBV_EXP_QP_CREATE_EC_PARITY_EN             = 1 << 10,
	IBV_EXP_QP_CREATE_RX_END_PADDING           = 1 << 11,
	IBV_EXP_QP_CREATE_SCATTER_FCS              = 1 << 12,
	IBV_EXP_QP_CREATE_TUNNEL_OFFLOADS          = 1 << 13,
	IBV_EXP_QP_CREATE_INTERNAL_USE             = 1 << 15,
	IBV_EXP_QP_CREATE_PACKET_BASED_CREDIT_MODE = 1 << 16,
	/* all of the above that programs may set */
	IBV_EXP_QP_CREATE_MASK                     = 0x13fdc,
};

/* QP groups: one parent, children that send (TSS) or receive (RSS) for it. */
enum ibv_exp_qpg_type {
	IBV_EXP_QPG_NONE     = 0x00,
	IBV_EXP_QPG_PARENT   = 0x01,
	IBV_EXP_QPG_CHILD_RX = 0x02,
	IBV_EXP_QPG_CHILD_TX = 0x04,
};

struct ibv_exp_qpg_init_attrib {
	uint32_t tss_child_count;
	uint32_t rss_child_count;
};

struct ibv_exp_qpg {
	uint32_t qpg_type; /* enum ibv_exp_qpg_type */
	__extension__ union {
		struct ibv_qp *qpg_parent; /* of a child */
		struct ibv_exp_qpg_init_attrib parent_attrib; /* of a parent */
	};
};

/*
 * Attributes of a new QP. The head up to sq_sig_all is that of
 * ibv_qp_init_attr.
 */
struct ibv_exp_qp_init_attr {
	void *qp_context;
	struct ibv_cq *send_cq;
	struct ibv_cq *recv_cq;
	struct ibv_srq *srq;
	struct ibv_qp_cap cap;
	enum ibv_qp_type qp_type;
	int sq_sig_all;
	uint32_t comp_mask; /* IBV_EXP_QP_INIT_ATTR_* */
	struct ibv_pd *pd;
	struct ibv_xrcd *xrcd;
	uint32_t exp_create_flags; /* IBV_EXP_QP_CREATE_* */
	uint32_t max_inl_recv; /* bytes to receive into the completion */
	struct ibv_exp_qpg qpg;
	uint32_t max_atomic_arg; /* bytes */
	uint32_t max_inl_send_klms; /* entries of UMR requests that fit into the work request */
	struct ibv_exp_res_domain *res_domain;
	struct ibv_exp_rx_hash_conf *rx_hash_conf; /* makes the QP a receive-side scaling entry */
	uint8_t port_num;
	struct ibv_exp_peer_direct_attr *peer_direct_attrs;
	uint16_t max_tso_header; /* bytes */
	uint32_t associated_qpn; /* send packets as coming from this QP */
};

/*
 * ibv_exp_create_qp - create a queue pair
 *
 * Free with ibv_destroy_qp(). The QP is an ordinary ibv_qp: all base verbs
 * work on it.
 *
 * @qp_init_attr  granted sizes are written back: cap, max_inl_recv and the
 *                other limits. A comp_mask of exactly IBV_EXP_QP_INIT_ATTR_PD
 *                makes this a call of ibv_create_qp()
 *
 * Returns: the QP, or NULL with errno set. ENOSYS: no operation table.
 * EINVAL: comp_mask out of range.
 * Rule: legacy inline and man.
 */
IBVEXP_CALL struct ibv_qp *
ibv_exp_create_qp(struct ibv_context *context,
		  struct ibv_exp_qp_init_attr *qp_init_attr);

/*
 * Modification
 */

/* The exp_attr_mask of ibv_exp_modify_qp(); up to bit 20 as IBV_QP_*. */
__extension__ enum ibv_exp_qp_attr_mask {
	IBV_EXP_QP_STATE                 = 1 << 0,
	IBV_EXP_QP_CUR_STATE             = 1 << 1,
	IBV_EXP_QP_EN_SQD_ASYNC_NOTIFY   = 1 << 2,
	IBV_EXP_QP_ACCESS_FLAGS          = 1 << 3,
	IBV_EXP_QP_PKEY_INDEX            = 1 << 4,
	IBV_EXP_QP_PORT                  = 1 << 5,
	IBV_EXP_QP_QKEY                  = 1 << 6,
	IBV_EXP_QP_AV                    = 1 << 7,
	IBV_EXP_QP_PATH_MTU              = 1 << 8,
	IBV_EXP_QP_TIMEOUT               = 1 << 9,
	IBV_EXP_QP_RETRY_CNT             = 1 << 10,
	IBV_EXP_QP_RNR_RETRY             = 1 << 11,
	IBV_EXP_QP_RQ_PSN                = 1 << 12,
	IBV_EXP_QP_MAX_QP_RD_ATOMIC      = 1 << 13,
	IBV_EXP_QP_ALT_PATH              = 1 << 14,
	IBV_EXP_QP_MIN_RNR_TIMER         = 1 << 15,
	IBV_EXP_QP_SQ_PSN                = 1 << 16,
	IBV_EXP_QP_MAX_DEST_RD_ATOMIC    = 1 << 17,
	IBV_EXP_QP_PATH_MIG_STATE        = 1 << 18,
	IBV_EXP_QP_CAP                   = 1 << 19,
	IBV_EXP_QP_DEST_QPN              = 1 << 20,
	IBV_EXP_QP_GROUP_RSS             = IBV_EXP_START_FLAG << 21,
	/* required when a DC initiator goes to INIT */
	IBV_EXP_QP_DC_KEY                = IBV_EXP_START_FLAG << 22,
	IBV_EXP_QP_FLOW_ENTROPY          = IBV_EXP_START_FLAG << 23,
	IBV_EXP_QP_OOO_RW_DATA_PLACEMENT = IBV_EXP_START_FLAG << 24,
	IBV_EXP_QP_RATE_LIMIT            = IBV_EXP_START_FLAG << 25,
};

/* ibv_exp_qp_attr.comp_mask */
enum ibv_exp_qp_attr_comp_mask {
	IBV_EXP_QP_ATTR_FLOW_ENTROPY = 1 << 0,
	IBV_EXP_QP_ATTR_BURST_INFO   = 1 << 1,
	IBV_EXP_QP_ATTR_RESERVED     = 1 << 2,
};

/* Shape of the packets that a rate limit is measured with. */
struct ibv_exp_burst_info {
	uint32_t max_burst_sz; /* bytes */
	uint16_t typical_pkt_sz; /* bytes */
};

/*
 * Attributes of a QP. The head up to alt_timeout is that of ibv_qp_attr.
 */
struct ibv_exp_qp_attr {
	enum ibv_qp_state qp_state;
	enum ibv_qp_state cur_qp_state;
	enum ibv_mtu path_mtu;
	enum ibv_mig_state path_mig_state;
	uint32_t qkey;
	uint32_t rq_psn;
	uint32_t sq_psn;
	uint32_t dest_qp_num;
	int qp_access_flags;
	struct ibv_qp_cap cap;
	struct ibv_ah_attr ah_attr;
	struct ibv_ah_attr alt_ah_attr;
	uint16_t pkey_index;
	uint16_t alt_pkey_index;
	uint8_t en_sqd_async_notify;
	uint8_t sq_draining;
	uint8_t max_rd_atomic;
	uint8_t max_dest_rd_atomic;
	uint8_t min_rnr_timer;
	uint8_t port_num;
	uint8_t timeout;
	uint8_t retry_cnt;
	uint8_t rnr_retry;
	uint8_t alt_port_num;
	uint8_t alt_timeout;
	uint64_t dct_key;
	uint32_t comp_mask; /* IBV_EXP_QP_ATTR_* */
	uint32_t flow_entropy;
	uint32_t rate_limit; /* kbit/s, 0 for none */
	struct ibv_exp_burst_info burst_info;
};

/*
 * ibv_exp_modify_qp - change attributes and state of a queue pair
 *
 * A DC initiator needs PKEY_INDEX, PORT and DC_KEY to INIT, PATH_MTU and AV
 * to RTR, and TIMEOUT, RETRY_CNT, RNR_RETRY and MAX_QP_RD_ATOMIC to RTS.
 *
 * @exp_attr_mask  IBV_EXP_QP_*, 64 bits
 *
 * Threads: not concurrently on the same QP.
 * Returns: 0, or a positive errno value. ENOSYS (errno set): no operation
 * table. EINVAL: attr->comp_mask out of range, or not a legal transition.
 * Rule: legacy inline and man.
 */
IBVEXP_CALL int ibv_exp_modify_qp(struct ibv_qp *qp,
				  struct ibv_exp_qp_attr *attr,
				  uint64_t exp_attr_mask);

/*
 * Work requests
 */

/*
 * ibv_exp_send_wr.exp_opcode. In MLNX_OFED 3.x three had other values:
 * SEND_WITH_INV 0x48, LOCAL_INV 0x4a, BIND_MW 0x4e.
 */
enum ibv_exp_wr_opcode {
	IBV_EXP_WR_RDMA_WRITE                      = 0x00,
	IBV_EXP_WR_RDMA_WRITE_WITH_IMM             = 0x01,
	IBV_EXP_WR_SEND                            = 0x02,
	IBV_EXP_WR_SEND_WITH_IMM                   = 0x03,
	IBV_EXP_WR_RDMA_READ                       = 0x04,
	IBV_EXP_WR_ATOMIC_CMP_AND_SWP              = 0x05,
	IBV_EXP_WR_ATOMIC_FETCH_AND_ADD            = 0x06,
	IBV_EXP_WR_LOCAL_INV                       = 0x07,
	IBV_EXP_WR_BIND_MW                         = 0x08,
	IBV_EXP_WR_SEND_WITH_INV                   = 0x09,
	IBV_EXP_WR_TSO                             = 0x4f,
	IBV_EXP_WR_SEND_ENABLE                     = 0x60, /* release requests of a managed QP */
	IBV_EXP_WR_RECV_ENABLE                     = 0x61,
	IBV_EXP_WR_CQE_WAIT                        = 0x62, /* wait for completions of a CQ */
	IBV_EXP_WR_EXT_MASKED_ATOMIC_CMP_AND_SWP   = 0x63,
	IBV_EXP_WR_EXT_MASKED_ATOMIC_FETCH_AND_ADD = 0x64,
	IBV_EXP_WR_NOP                             = 0x65,
	IBV_EXP_WR_UMR_FILL                        = 0x66,
	IBV_EXP_WR_UMR_INVALIDATE                  = 0x67,
};

/* ibv_exp_send_wr.exp_send_flags; the first four as IBV_SEND_*. */
__extension__ enum ibv_exp_send_flags {
	IBV_EXP_SEND_FENCE             = 1 << 0,
	IBV_EXP_SEND_SIGNALED          = 1 << 1,
	IBV_EXP_SEND_SOLICITED         = 1 << 2,
	IBV_EXP_SEND_INLINE            = 1 << 3,
	/* compute IP and TCP or UDP checksums */
	IBV_EXP_SEND_IP_CSUM           = IBV_EXP_START_FLAG,
	/* op.calc: reduce while sending */
	IBV_EXP_SEND_WITH_CALC         = IBV_EXP_START_FLAG << 1,
	IBV_EXP_SEND_WAIT_EN_LAST      = IBV_EXP_START_FLAG << 2,
	/* operands are in the work request */
	IBV_EXP_SEND_EXT_ATOMIC_INLINE = IBV_EXP_START_FLAG << 3,
};

/* ibv_exp_send_wr.comp_mask */
enum ibv_exp_send_wr_comp_mask {
	IBV_EXP_SEND_WR_ATTR_RESERVED = 1 << 0,
};

/*
 * Operands of masked atomics. Up to 8 bytes they are values, in the low
 * bytes; longer ones are addresses of the operands.
 */
struct ibv_exp_cmp_swap {
	uint64_t compare_mask; /* bits to compare */
	uint64_t compare_val;
	uint64_t swap_val;
	uint64_t swap_mask; /* bits to replace */
};

struct ibv_exp_fetch_add {
	uint64_t add_val;
	uint64_t field_boundary; /* a 1 ends a field: no carry beyond it */
};

/*
 * A work request. Only the members that opcode, flags and QP type define are
 * read; the others may hold anything.
 */
struct ibv_exp_send_wr {
	uint64_t wr_id;
	struct ibv_exp_send_wr *next;
	struct ibv_sge *sg_list;
	int num_sge;
	enum ibv_exp_wr_opcode exp_opcode;
	int reserved; /* send_flags in ibv_send_wr */
	union {
		uint32_t imm_data; /* network byte order */
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
	__extension__ union {
		union {
			struct {
				uint32_t remote_srqn;
			} xrc;
		} qp_type;
		uint32_t xrc_remote_srq_num;
	};
	/* operands of the requests that control other queues */
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
		/* IBV_EXP_WR_CQE_WAIT */
		struct {
			struct ibv_cq *cq;
			int32_t cq_count;
		} cqe_wait;
		/* IBV_EXP_WR_SEND_ENABLE, IBV_EXP_WR_RECV_ENABLE */
		struct {
			struct ibv_qp *qp;
			int32_t wqe_count; /* 0 for all that are posted */
		} wqe_enable;
	} task;
	union {
		/* IBV_EXP_SEND_WITH_CALC */
		struct {
			enum ibv_exp_calc_op calc_op;
			enum ibv_exp_calc_data_type data_type;
			enum ibv_exp_calc_data_size data_size;
		} calc;
	} op;
	/* destination, DC initiators only */
	struct {
		struct ibv_ah *ah;
		uint64_t dct_access_key;
		uint32_t dct_number;
	} dc;
	__extension__ union {
		/* IBV_EXP_WR_BIND_MW */
		struct {
			struct ibv_mw *mw;
			uint32_t rkey;
			struct ibv_exp_mw_bind_info bind_info;
		} bind_mw;
		/* IBV_EXP_WR_TSO */
		struct {
			void *hdr; /* copied while posting */
			uint16_t hdr_sz; /* bytes */
			uint16_t mss; /* payload bytes of each segment */
		} tso;
	};
	uint64_t exp_send_flags; /* IBV_EXP_SEND_* */
	uint32_t comp_mask; /* not examined */
	union {
		/* IBV_EXP_WR_UMR_FILL, IBV_EXP_WR_UMR_INVALIDATE */
		struct {
			uint32_t umr_type; /* enum ibv_exp_umr_wr_type */
			/* room for the list unless inline */
			struct ibv_exp_mkey_list_container *memory_objects;
			uint64_t exp_access; /* IBV_EXP_ACCESS_* */
			struct ibv_mr *modified_mr; /* the key that is made or unmade */
			uint64_t base_addr; /* first address of the new key */
			uint32_t num_mrs; /* pieces or blocks */
			union {
				/* the pieces; none for INVALIDATE */
				struct ibv_exp_mem_region *mem_reg_list;
				struct {
					struct ibv_exp_mem_repeat_block *mem_repeat_block_list;
					/* array with an element per dimension */
					size_t *repeat_count;
					uint32_t stride_dim; /* dimensions */
				} rb;
			} mem_list;
		} umr;
		/* IBV_EXP_WR_EXT_MASKED_ATOMIC_* */
		struct {
			uint32_t log_arg_sz; /* operands of 1 << n bytes */
			uint64_t remote_addr;
			uint32_t rkey;
			union {
				struct {
					union {
						struct ibv_exp_cmp_swap cmp_swap;
						struct ibv_exp_fetch_add fetch_add;
					} op;
				} inline_data;
			} wr_data;
		} masked_atomics;
	} ext_op;
};

/* Type of what ibv_exp_get_provider_func(IBV_EXP_POST_SEND_FUNC) returns. */
typedef int (*drv_exp_post_send_func)(struct ibv_qp *ibqp,
				      struct ibv_exp_send_wr *wr,
				      struct ibv_exp_send_wr **bad_wr);

/*
 * ibv_exp_post_send - post a list of work requests
 *
 * May be mixed with ibv_post_send() on one QP. The requests and their lists
 * may be reused on return, memory that they name only after completion
 * (IBV_EXP_SEND_INLINE data at once); address handles not before completion.
 *
 * @bad_wr  receives the first request that was not posted, if any; those
 *          before it are posted
 *
 * Returns: 0, or a positive errno value. -ENOSYS: no operation table (neither
 * errno nor *bad_wr is touched).
 * Rule: legacy inline and man.
 */
IBVEXP_CALL int ibv_exp_post_send(struct ibv_qp *qp,
				  struct ibv_exp_send_wr *wr,
				  struct ibv_exp_send_wr **bad_wr);

enum ibv_exp_task_type {
	IBV_EXP_TASK_SEND = 0,
	IBV_EXP_TASK_RECV = 1,
};

enum ibv_exp_task_comp_mask {
	IBV_EXP_TASK_RESERVED = 1 << 0,
};

/* Work for one of several QPs. */
struct ibv_exp_task {
	enum ibv_exp_task_type task_type;
	struct {
		struct ibv_qp *qp;
		__extension__ union {
			struct ibv_exp_send_wr *send_wr; /* list, if IBV_EXP_TASK_SEND */
			struct ibv_recv_wr *recv_wr; /* list, if IBV_EXP_TASK_RECV */
		};
	} item;
	struct ibv_exp_task *next;
	uint32_t comp_mask;
};

/*
 * ibv_exp_post_task - post work requests to several queue pairs
 *
 * Stops at the first task that fails; those before it stay posted.
 *
 * @bad_task  receives the task that failed
 *
 * Returns: 0, or a positive errno value. ENOSYS: no operation table (errno is
 * not touched). EINVAL: comp_mask of the first task out of range; the others
 * are left to the library.
 * Rule: legacy inline and man.
 */
IBVEXP_CALL int ibv_exp_post_task(struct ibv_context *context,
				  struct ibv_exp_task *task,
				  struct ibv_exp_task **bad_task);

/*
 * Address vectors with link-layer addresses; only providers took them.
 */

enum ibv_exp_ah_attr_attr_comp_mask {
	IBV_EXP_AH_ATTR_LL       = 1 << 0,
	IBV_EXP_AH_ATTR_VID      = 1 << 1,
	IBV_EXP_AH_ATTR_RESERVED = 1 << 2,
};

enum ll_address_type {
	LL_ADDRESS_UNKNOWN = 0,
	LL_ADDRESS_IB      = 1,
	LL_ADDRESS_ETH     = 2,
	LL_ADDRESS_SIZE    = 3,
};

struct ibv_exp_ah_attr {
	struct ibv_global_route grh;
	uint16_t dlid;
	uint8_t sl;
	uint8_t src_path_bits;
	uint8_t static_rate;
	uint8_t is_global;
	uint8_t port_num;
	uint32_t comp_mask;
	struct {
		enum ll_address_type type;
		uint32_t len;
		char *address;
	} ll_address;
	uint16_t vid;
};

/*
 * Targets of the DC transport
 */

enum ibv_exp_dct_create_flags {
	IBV_EXP_DCT_OOO_RW_DATA_PLACEMENT = 1 << 0,
	IBV_EXP_DCT_CREATE_FLAGS_MASK     = 1 << 0,
};

enum ibv_exp_dct_init_attr_comp_mask {
	IBV_EXP_DCT_INIT_ATTR_RESERVED = 1 << 0,
};

struct ibv_exp_dct_init_attr {
	struct ibv_pd *pd;
	struct ibv_cq *cq; /* required */
	struct ibv_srq *srq; /* where messages go; required */
	uint64_t dc_key; /* initiators must present it */
	uint8_t port; /* from 1 */
	uint32_t access_flags; /* IBV_ACCESS_* */
	uint8_t min_rnr_timer;
	uint8_t tclass;
	uint32_t flow_label;
	enum ibv_mtu mtu;
	uint8_t pkey_index;
	uint8_t gid_index;
	uint8_t hop_limit;
	uint32_t inline_size; /* bytes to receive into the completion; granted size on return */
	uint32_t create_flags; /* IBV_EXP_DCT_* */
	uint32_t comp_mask;
};

/* ibv_exp_dct_attr.state */
enum {
	IBV_EXP_DCT_STATE_ACTIVE   = 0,
	IBV_EXP_DCT_STATE_DRAINING = 1,
	IBV_EXP_DCT_STATE_DRAINED  = 2,
};

enum ibv_exp_dct_attr_comp_mask {
	IBV_EXP_DCT_ATTR_RESERVED = 1 << 0,
};

struct ibv_exp_dct_attr {
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
	uint32_t key_violations;
	uint8_t state; /* IBV_EXP_DCT_STATE_* */
	struct ibv_srq *srq;
	struct ibv_cq *cq;
	struct ibv_pd *pd;
	uint32_t comp_mask;
};

enum ibv_exp_arm_attr_comp_mask {
	IBV_EXP_ARM_ATTR_RESERVED = 1 << 0,
};

struct ibv_exp_arm_attr {
	uint32_t comp_mask;
};

/* A DC target. dct_num is what initiators address. */
struct ibv_exp_dct {
	struct ibv_context *context;
	uint32_t handle;
	uint32_t dct_num;
	struct ibv_pd *pd;
	struct ibv_srq *srq;
	struct ibv_cq *cq;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events_completed;
};

/*
 * ibv_exp_create_dct - create a DC target
 *
 * The target is live on return. Free with ibv_exp_destroy_dct().
 *
 * Holds context->mutex, like the three calls below: completion queues with a
 * channel and other targets wait meanwhile.
 *
 * Returns: the target, or NULL with errno set. ENOSYS: no operation table.
 * Rule: legacy inline and man; manual A.1.
 */
IBVEXP_CALL struct ibv_exp_dct *
ibv_exp_create_dct(struct ibv_context *context,
		   struct ibv_exp_dct_init_attr *attr);

/*
 * ibv_exp_destroy_dct - destroy a DC target
 *
 * Returns: 0, or a positive errno value. ENOSYS (errno set): no operation
 * table.
 * Rule: legacy inline and man.
 */
IBVEXP_CALL int ibv_exp_destroy_dct(struct ibv_exp_dct *dct);

/*
 * ibv_exp_query_dct - read the attributes of a DC target
 *
 * @attr  comp_mask must be 0
 *
 * Returns: 0, or a positive errno value. ENOSYS (errno set): no operation
 * table.
 * Rule: legacy inline and man.
 */
IBVEXP_CALL int ibv_exp_query_dct(struct ibv_exp_dct *dct,
				  struct ibv_exp_dct_attr *attr);

/*
 * ibv_exp_arm_dct - ask for one event when an initiator shows a wrong key
 *
 * Returns: 0, or a positive errno value. ENOSYS (errno set): no operation
 * table.
 * Rule: legacy inline and man; manual A.1.6.
 */
IBVEXP_CALL int ibv_exp_arm_dct(struct ibv_exp_dct *dct,
				struct ibv_exp_arm_attr *attr);

/* Notes that the device takes of DC connection requests. */
enum {
	IBV_EXP_NUM_DC_INFO_LIDS = 30,
};

struct ibv_exp_dc_info_ent {
	uint16_t lid[IBV_EXP_NUM_DC_INFO_LIDS];
	uint32_t seqnum;
};

/*
 * ibv_exp_poll_dc_info - read notes on DC connection requests
 *
 * @ents  room for @nent entries
 * @port  from 1
 *
 * Threads: the caller serialises.
 * Returns: the number of entries, or a negative value (-1 with errno ENOSYS:
 * no operation table).
 * Rule: legacy inline.
 */
IBVEXP_CALL int ibv_exp_poll_dc_info(struct ibv_context *context,
				     struct ibv_exp_dc_info_ent *ents,
				     int nent, int port);

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_VERBS_EXP_QP_H */
