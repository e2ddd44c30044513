/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The installed <infiniband/verbs.h> with the experimental verbs behind it, as
 * MLNX_OFED had it: for programs that include nothing else. Put its directory in
 * front of the system's (pkg-config --cflags libibverbs_exp-legacy).
 */
#pragma GCC system_header
#ifdef __cplusplus
extern "C++" {  /* see verbs_exp.h */
#include <limits>
}
#endif

/*
 * Enumerators that rdma-core's enumerations lack, put in front of one that they have: each of these
 * names stands once in rdma-core's header, where its enumeration is defined.
 */
#ifndef INFINIBAND_VERBS_H
#define IBVEXP_LEGACY_ENUMERATORS
#define IBV_NODE_CA \
	IBV_EXP_NODE_TYPE_START = 32, IBV_EXP_NODE_MIC = 32, IBV_NODE_CA
#define IBV_TRANSPORT_IB \
	IBV_EXP_TRANSPORT_TYPE_START = 32, IBV_EXP_TRANSPORT_SCIF = 32, IBV_TRANSPORT_IB
#define IBV_LINK_LAYER_UNSPECIFIED \
	IBV_EXP_LINK_LAYER_START = 32, IBV_EXP_LINK_LAYER_SCIF = 32, IBV_LINK_LAYER_UNSPECIFIED = 0
#define IBV_PORT_LINK_LATENCY_SUP \
	IBV_PORT_VENDOR_CLASS = 1 << 24, IBV_PORT_LINK_LATENCY_SUP
#define IBV_EVENT_WQ_FATAL \
	IBV_EXP_EVENT_DCT_KEY_VIOLATION = 32, IBV_EXP_EVENT_DCT_ACCESS_ERR = 33, \
	IBV_EXP_EVENT_DCT_REQ_ERR = 34, IBV_EVENT_WQ_FATAL = 19
#define IBV_REREG_MR_CHANGE_TRANSLATION \
	IBV_REREG_MR_KEEP_VALID = 8, IBV_REREG_MR_CHANGE_TRANSLATION
#define IBV_QPT_DRIVER \
	IBV_QPT_XRC = 5, IBV_QPT_RAW_ETH = 8, IBV_EXP_QP_TYPE_START = 32, \
	IBV_EXP_QPT_DC_INI = 32, IBV_QPT_DRIVER
#define IBV_QP_INIT_ATTR_XRCD \
	IBV_QP_INIT_ATTR_RESERVED = 4, IBV_QP_INIT_ATTR_XRCD
#define IBV_FLOW_ATTR_FLAGS_DONT_TRAP \
	IBV_FLOW_ATTR_FLAGS_ALLOW_LOOP_BACK = 1, IBV_FLOW_ATTR_FLAGS_DONT_TRAP
#endif
#include_next <infiniband/verbs.h>

#ifndef IBVEXP_LEGACY_VERBS_H
#define IBVEXP_LEGACY_VERBS_H
#ifdef IBVEXP_LEGACY_ENUMERATORS
#undef IBV_NODE_CA
#undef IBV_TRANSPORT_IB
#undef IBV_LINK_LAYER_UNSPECIFIED
#undef IBV_PORT_LINK_LATENCY_SUP
#undef IBV_EVENT_WQ_FATAL
#undef IBV_REREG_MR_CHANGE_TRANSLATION
#undef IBV_QPT_DRIVER
#undef IBV_QP_INIT_ATTR_XRCD
#undef IBV_FLOW_ATTR_FLAGS_DONT_TRAP
#endif
#include <infiniband/ofa_verbs.h>
#include <infiniband/verbs_exp.h>

/* rdma-core made a macro of it, which changes members and functions that programs call so. */
#undef ibv_reg_mr

/* rdma-core dropped it; programs of that time count on it. */
#ifndef container_of
#include <stddef.h>
#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))
#endif
#endif
