/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Experimental verbs: completion queues and work completions.
 */
#ifndef INFINIBAND_VERBS_EXP_CQ_H
#define INFINIBAND_VERBS_EXP_CQ_H

#ifndef INFINIBAND_VERBS_EXP_H
#error "include <infiniband/verbs_exp.h>, not its parts"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ibv_exp_cq_init_attr.flags */
enum ibv_exp_cq_create_flags {
	IBV_EXP_CQ_CREATE_CROSS_CHANNEL  = 1 << 0,
	IBV_EXP_CQ_TIMESTAMP             = 1 << 1, /* timestamps in device cycles */
	/* timestamps in ns since the epoch; not with the above */
	IBV_EXP_CQ_TIMESTAMP_TO_SYS_TIME = 1 << 2,
	IBV_EXP_CQ_COMPRESSED_CQE        = 1 << 3,
	IBV_EXP_CQ_AS_NOTIFY             = 1 << 4,
};

enum {
	IBV_EXP_CQ_CREATE_FLAGS_MASK = 0x1f,
};

/* ibv_exp_cq_init_attr.comp_mask; RESERVED is from before the last two bits. */
enum ibv_exp_cq_init_attr_mask {
	IBV_EXP_CQ_INIT_ATTR_FLAGS       = 1 << 0,
	IBV_EXP_CQ_INIT_ATTR_RESERVED    = 1 << 1,
	IBV_EXP_CQ_INIT_ATTR_RES_DOMAIN  = 1 << 1,
	IBV_EXP_CQ_INIT_ATTR_PEER_DIRECT = 1 << 2,
	IBV_EXP_CQ_INIT_ATTR_RESERVED1   = 1 << 3,
};

struct ibv_exp_cq_init_attr {
	uint32_t comp_mask; /* IBV_EXP_CQ_INIT_ATTR_* */
	uint32_t flags; /* IBV_EXP_CQ_* */
	struct ibv_exp_res_domain *res_domain;
	struct ibv_exp_peer_direct_attr *peer_direct_attrs;
};

/*
 * ibv_exp_create_cq - create a completion queue
 *
 * Free with ibv_destroy_cq().
 *
 * @cqe          least number of entries
 * @cq_context   for the program, ibv_cq.cq_context
 * @channel      where events go, or NULL
 * @comp_vector  from 0 to context->num_comp_vectors - 1
 *
 * Holds context->mutex while the library works and initialises the queue's
 * own lock afterwards: no other thread may see the queue before the return.
 *
 * Returns: the queue, or NULL with errno set. ENOSYS: no operation table.
 * EINVAL: comp_mask or flags out of range.
 * Rule: legacy inline and man.
 */
IBVEXP_CALL struct ibv_cq *
ibv_exp_create_cq(struct ibv_context *context, int cqe, void *cq_context,
		  struct ibv_comp_channel *channel, int comp_vector,
		  struct ibv_exp_cq_init_attr *attr);

/* The cq_attr_mask of ibv_exp_modify_cq() */
enum ibv_exp_cq_attr_mask {
	IBV_EXP_CQ_MODERATION = 1 << 0,
	IBV_EXP_CQ_CAP_FLAGS  = 1 << 1,
};

/* ibv_exp_cq_attr.cq_cap_flags */
enum ibv_exp_cq_cap_flags {
	IBV_EXP_CQ_IGNORE_OVERRUN = 1 << 0,
	IBV_EXP_CQ_CAP_MASK       = IBV_EXP_CQ_IGNORE_OVERRUN,
};

/* ibv_exp_cq_attr.comp_mask */
enum ibv_exp_cq_attr_comp_mask {
	IBV_EXP_CQ_ATTR_MODERATION   = 1 << 0,
	IBV_EXP_CQ_ATTR_CQ_CAP_FLAGS = 1 << 1,
	IBV_EXP_CQ_ATTR_RESERVED     = 1 << 2,
};

struct ibv_exp_cq_attr {
	uint32_t comp_mask;
	/* when to raise an event */
	struct {
		uint16_t cq_count; /* after that many completions */
		uint16_t cq_period; /* or that many microseconds */
	} moderation;
	uint32_t cq_cap_flags; /* IBV_EXP_CQ_IGNORE_OVERRUN */
};

/*
 * ibv_exp_modify_cq - change a completion queue
 *
 * All or nothing.
 *
 * @cq_attr_mask  IBV_EXP_CQ_MODERATION, IBV_EXP_CQ_CAP_FLAGS
 *
 * Returns: 0, or a positive errno value. ENOSYS: no operation table (errno is
 * not touched). EINVAL: comp_mask out of range.
 * Rule: legacy inline and man.
 */
IBVEXP_CALL int ibv_exp_modify_cq(struct ibv_cq *cq,
				  struct ibv_exp_cq_attr *cq_attr,
				  int cq_attr_mask);

/* ibv_exp_wc.exp_opcode */
enum ibv_exp_wc_opcode {
	IBV_EXP_WC_SEND               = 0x00,
	IBV_EXP_WC_RDMA_WRITE         = 0x01,
	IBV_EXP_WC_RDMA_READ          = 0x02,
	IBV_EXP_WC_COMP_SWAP          = 0x03,
	IBV_EXP_WC_FETCH_ADD          = 0x04,
	IBV_EXP_WC_BIND_MW            = 0x05,
	IBV_EXP_WC_LOCAL_INV          = 0x06,
	IBV_EXP_WC_MASKED_COMP_SWAP   = 0x09,
	IBV_EXP_WC_MASKED_FETCH_ADD   = 0x0a,
	IBV_EXP_WC_TSO                = 0x0b,
	IBV_EXP_WC_UMR                = 0x100,
	IBV_EXP_WC_RECV               = 0x80,
	IBV_EXP_WC_RECV_RDMA_WITH_IMM = 0x81,
	IBV_EXP_WC_TM_ADD             = 0xc0,
	IBV_EXP_WC_TM_DEL             = 0xc1,
	IBV_EXP_WC_TM_SYNC            = 0xc2,
	IBV_EXP_WC_TM_RECV            = 0xc3,
	IBV_EXP_WC_TM_NO_TAG          = 0xc4,
	IBV_EXP_WC_RECV_NOP           = 0xc5,
};

/* ibv_exp_wc.exp_wc_flags */
__extension__ enum ibv_exp_wc_flags {
	IBV_EXP_WC_GRH                      = 1 << 0,
	IBV_EXP_WC_WITH_IMM                 = 1 << 1,
	/* imm_data is the key that the peer invalidated */
	IBV_EXP_WC_WITH_INV                 = 1 << 3,
	IBV_EXP_WC_WITH_SL                  = IBV_EXP_START_FLAG << 4, /* sl is valid */
	IBV_EXP_WC_WITH_SLID                = IBV_EXP_START_FLAG << 5, /* slid is valid */
	IBV_EXP_WC_WITH_TIMESTAMP           = IBV_EXP_START_FLAG << 6, /* timestamp is valid */
	IBV_EXP_WC_QP                       = IBV_EXP_START_FLAG << 7, /* qp is valid */
	IBV_EXP_WC_SRQ                      = IBV_EXP_START_FLAG << 8, /* srq is valid */
	IBV_EXP_WC_DCT                      = IBV_EXP_START_FLAG << 9, /* dct is valid */
	IBV_EXP_WC_RX_IP_CSUM_OK            = IBV_EXP_START_FLAG << 10,
	IBV_EXP_WC_RX_TCP_UDP_CSUM_OK       = IBV_EXP_START_FLAG << 11,
	IBV_EXP_WC_RX_IPV4_PACKET           = IBV_EXP_START_FLAG << 12,
	IBV_EXP_WC_RX_IPV6_PACKET           = IBV_EXP_START_FLAG << 13,
	IBV_EXP_WC_RX_TUNNEL_PACKET         = IBV_EXP_START_FLAG << 14,
	IBV_EXP_WC_RX_OUTER_IP_CSUM_OK      = IBV_EXP_START_FLAG << 15,
	IBV_EXP_WC_RX_OUTER_TCP_UDP_CSUM_OK = IBV_EXP_START_FLAG << 16,
	IBV_EXP_WC_RX_OUTER_IPV4_PACKET     = IBV_EXP_START_FLAG << 17,
	IBV_EXP_WC_RX_OUTER_IPV6_PACKET     = IBV_EXP_START_FLAG << 18,
	IBV_EXP_WC_TM_SYNC_REQ              = IBV_EXP_START_FLAG << 19,
	IBV_EXP_WC_TM_DEL_FAILED            = IBV_EXP_START_FLAG << 20,
	IBV_EXP_WC_TM_MATCH                 = IBV_EXP_START_FLAG << 21,
	IBV_EXP_WC_TM_DATA_VALID            = IBV_EXP_START_FLAG << 22, /* the data was delivered */
	IBV_EXP_WC_TM_RNDV_INCOMPLETE       = IBV_EXP_START_FLAG << 23,
	/* the message goes on in the next completion */
	IBV_EXP_WC_MP_WR_MORE_IN_MSG        = IBV_EXP_START_FLAG << 24,
	IBV_EXP_WC_MP_WR_CONSUMED           = IBV_EXP_START_FLAG << 25, /* the buffer is used up */
};

/*
 * A completion. With a status other than success only wr_id, status, qp_num
 * and vendor_err are valid. The structure grew at its end in MLNX_OFED 4.1,
 * from 88 to 104 bytes.
 */
struct ibv_exp_wc {
	uint64_t wr_id;
	enum ibv_wc_status status;
	enum ibv_exp_wc_opcode exp_opcode;
	uint32_t vendor_err;
	__extension__ union {
		uint32_t byte_len; /* bytes received */
		struct {
			uint16_t strides_offset; /* multi-packet buffers: strides from the start */
			uint16_t byte_len; /* bytes */
		} mp_wr;
	};
	uint32_t imm_data; /* network byte order */
	uint32_t qp_num;
	uint32_t src_qp;
	int reserved;
	uint16_t pkey_index;
	uint16_t slid;
	uint8_t sl;
	uint8_t dlid_path_bits;
	uint64_t timestamp; /* unit as the queue was created with */
	struct ibv_qp *qp;
	struct ibv_srq *srq;
	struct ibv_exp_dct *dct;
	uint64_t exp_wc_flags;
	struct {
		uint64_t tag;
		uint32_t priv;
	} tm_info;
};

/* Type of what ibv_exp_get_provider_func(IBV_EXP_POLL_CQ_FUNC) returns. */
typedef int (*drv_exp_poll_cq_func)(struct ibv_cq *ibcq, int num_entries,
				    struct ibv_exp_wc *wc, uint32_t wc_size);

/*
 * ibv_exp_poll_cq - take completions from a queue
 *
 * @num_entries  room in @wc
 * @wc_size      sizeof(struct ibv_exp_wc) as the caller knows it: distance of
 *               the elements, and nothing is written beyond it
 *
 * May be mixed with ibv_poll_cq() on one queue.
 *
 * Returns: the number of completions, 0 for none, or a negative errno value.
 * -ENOSYS: no operation table (errno is not touched).
 * Rule: legacy inline and man.
 */
IBVEXP_CALL int ibv_exp_poll_cq(struct ibv_cq *ibcq, int num_entries,
				struct ibv_exp_wc *wc, uint32_t wc_size);

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_VERBS_EXP_CQ_H */
