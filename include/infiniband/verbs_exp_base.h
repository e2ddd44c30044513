/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Experimental verbs: what the other parts stand on. Three things: names that
 * the legacy <infiniband/verbs.h> had and rdma-core's has not, the numbering
 * scheme of the experimental constants, and the comp_mask check.
 */
#ifndef INFINIBAND_VERBS_EXP_BASE_H
#define INFINIBAND_VERBS_EXP_BASE_H

#ifndef INFINIBAND_VERBS_EXP_H
#error "include <infiniband/verbs_exp.h>, not its parts"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Linkage of the calls, see "Two ways to call" in verbs_exp.h.
 */
#ifdef IBVEXP_EXTERN_CALLS
#define IBVEXP_CALL extern
#else
#define IBVEXP_CALL static inline
#endif

/*
 * Numbering. The vendor kept its additions out of the way of upstream: new
 * members of enumerations start at 64, or at 32 in the base enumerations
 * below; new flags start at bit 32 of a 64-bit word.
 */
__extension__ enum ibv_exp_start_values {
	IBV_EXP_START_ENUM     = 0x40,
	IBV_EXP_START_FLAG_LOC = 0x20,
	IBV_EXP_START_FLAG     = 1ULL << IBV_EXP_START_FLAG_LOC,
};

/*
 * Additions to base enumerations.
 *
 * The originals are members of rdma-core's own enumerations, which cannot be
 * extended from outside. A program whose <infiniband/verbs.h> is that of
 * include/legacy has them there nevertheless. For others, values that a program
 * stores into a member or passes to a call are casts to the right type, because
 * C++ does not convert; values that are only compared are plain integers,
 * because some lie outside the range that C++ grants the enumeration. Compilers
 * warn about case labels and, in C++, comparisons outside the enumeration:
 * switch on an integer, compare integers.
 */
#ifndef IBVEXP_LEGACY_ENUMERATORS
/* enum ibv_qp_type; 5 is the old XRC initiator, see ofa_verbs.h. */
#define IBV_EXP_QP_TYPE_START ((enum ibv_qp_type)32)
#define IBV_EXP_QPT_DC_INI ((enum ibv_qp_type)32)
#define IBV_QPT_XRC ((enum ibv_qp_type)5)
#define IBV_QPT_RAW_ETH IBV_QPT_RAW_PACKET

/* enum ibv_rereg_mr_flags; the flag asked to keep the region on failure. */
#define IBV_REREG_MR_KEEP_VALID 8

/* enum ibv_qp_init_attr_mask; bounds legacy masks only, rdma-core's go on. */
#define IBV_QP_INIT_ATTR_RESERVED 4

/* enum ibv_event_type: asynchronous events of DC targets. */
#define IBV_EXP_EVENT_DCT_KEY_VIOLATION 32
#define IBV_EXP_EVENT_DCT_ACCESS_ERR 33
#define IBV_EXP_EVENT_DCT_REQ_ERR 34

/* enum ibv_node_type, enum ibv_transport_type and link layers: Xeon Phi. */
#define IBV_EXP_NODE_TYPE_START 32
#define IBV_EXP_NODE_MIC 32
#define IBV_EXP_TRANSPORT_TYPE_START 32
#define IBV_EXP_TRANSPORT_SCIF 32
#define IBV_EXP_LINK_LAYER_START 32
#define IBV_EXP_LINK_LAYER_SCIF 32

/*
 * enum ibv_port_cap_flags; rdma-core calls this bit
 * IBV_PORT_LINK_LATENCY_SUP.
 */
#define IBV_PORT_VENDOR_CLASS (1 << 24)

/* enum ibv_flow_flags; no current kernel accepts it. */
#define IBV_FLOW_ATTR_FLAGS_ALLOW_LOOP_BACK 1

#endif /* IBVEXP_LEGACY_ENUMERATORS */

/* Or-ed to the event type when the QP is an XRC receive QP. */
__extension__ enum ibv_event_flags {
	IBV_XRC_QP_EVENT_FLAG = 0x80000000U,
};

/*
 * The feature word of a legacy verbs_context, 16 bytes in front of the
 * ibv_context. rdma-core keeps the word as an unused placeholder.
 */
__extension__ enum verbs_context_mask {
	VERBS_CONTEXT_XRCD     = 1 << 0,
	VERBS_CONTEXT_SRQ      = 1 << 1,
	VERBS_CONTEXT_QP       = 1 << 2,
	VERBS_CONTEXT_RESERVED = 1 << 3,
	VERBS_CONTEXT_EXP      = 1ULL << 62, /* an operation table is attached */
};

/*
 * comp_mask check: an unsigned comparison, not a bit test, with the mask's
 * highest permitted value. On failure it prints a line on stderr, because
 * the legacy inlines did and their users look for that line, and sets errno.
 */
static inline int ibvexp_comp_mask_ok(const char *caller, uint64_t mask,
				      uint64_t highest)
{
	if (mask <= highest)
		return 1;
	fprintf(stderr,
		"%s: invalid comp_mask !!! 0x%llx, this header allows up to 0x%llx\n",
		caller, (unsigned long long)mask, (unsigned long long)highest);
	errno = EINVAL;
	return 0;
}

/* Return @ret from the calling function unless @val is at most @valid_mask. */
#define IBV_EXP_RET_ON_INVALID_COMP_MASK(val, valid_mask, ret)                 \
	do {                                                                   \
		if (!ibvexp_comp_mask_ok(__func__, (val), (valid_mask)))       \
			return ret;                                            \
	} while (0)

#define IBV_EXP_RET_NULL_ON_INVALID_COMP_MASK(val, valid_mask)                 \
	IBV_EXP_RET_ON_INVALID_COMP_MASK(val, valid_mask, NULL)

#define IBV_EXP_RET_EINVAL_ON_INVALID_COMP_MASK(val, valid_mask)               \
	IBV_EXP_RET_ON_INVALID_COMP_MASK(val, valid_mask, EINVAL)

#define IBV_EXP_RET_ZERO_ON_INVALID_COMP_MASK(val, valid_mask)                 \
	IBV_EXP_RET_ON_INVALID_COMP_MASK(val, valid_mask, 0)

/*
 * Structures that the parts mention before (or without) defining them.
 */
struct ibv_exp_dct;
struct ibv_exp_dm;
struct ibv_exp_peer_abort_peek;
struct ibv_exp_peer_commit;
struct ibv_exp_peer_direct_attr;
struct ibv_exp_peer_peek;
struct ibv_exp_res_domain;
struct ibv_exp_rollback_ctx;
struct ibv_exp_rx_hash_conf;
struct ibv_exp_send_wr;

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_VERBS_EXP_BASE_H */
