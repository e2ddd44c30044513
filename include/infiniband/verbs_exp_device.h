/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Experimental verbs: opening devices and asking them questions. Device
 * attributes, ports, GID types, the hardware clock, the private environment.
 */
#ifndef INFINIBAND_VERBS_EXP_DEVICE_H
#define INFINIBAND_VERBS_EXP_DEVICE_H

#ifndef INFINIBAND_VERBS_EXP_H
#error "include <infiniband/verbs_exp.h>, not its parts"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Device attributes
 */

/* ibv_exp_device_attr.exp_atomic_cap */
enum ibv_exp_atomic_cap {
	IBV_EXP_ATOMIC_NONE         = 0x00,
	IBV_EXP_ATOMIC_HCA          = 0x01,
	IBV_EXP_ATOMIC_GLOB         = 0x02,
	IBV_EXP_ATOMIC_HCA_REPLY_BE = 0x40, /* replies are big-endian, the program swaps */
};

/*
 * ibv_exp_device_attr.exp_device_cap_flags. The low half repeats
 * ibv_device_cap_flags.
 */
__extension__ enum ibv_exp_device_cap_flags {
	IBV_EXP_DEVICE_RESIZE_MAX_WR            = 1 << 0,
	IBV_EXP_DEVICE_BAD_PKEY_CNTR            = 1 << 1,
	IBV_EXP_DEVICE_BAD_QKEY_CNTR            = 1 << 2,
	IBV_EXP_DEVICE_RAW_MULTI                = 1 << 3,
	IBV_EXP_DEVICE_AUTO_PATH_MIG            = 1 << 4,
	IBV_EXP_DEVICE_CHANGE_PHY_PORT          = 1 << 5,
	IBV_EXP_DEVICE_UD_AV_PORT_ENFORCE       = 1 << 6,
	IBV_EXP_DEVICE_CURR_QP_STATE_MOD        = 1 << 7,
	IBV_EXP_DEVICE_SHUTDOWN_PORT            = 1 << 8,
	IBV_EXP_DEVICE_INIT_TYPE                = 1 << 9,
	IBV_EXP_DEVICE_PORT_ACTIVE_EVENT        = 1 << 10,
	IBV_EXP_DEVICE_SYS_IMAGE_GUID           = 1 << 11,
	IBV_EXP_DEVICE_RC_RNR_NAK_GEN           = 1 << 12,
	IBV_EXP_DEVICE_SRQ_RESIZE               = 1 << 13,
	IBV_EXP_DEVICE_N_NOTIFY_CQ              = 1 << 14,
	IBV_EXP_DEVICE_XRC                      = 1 << 20,
	/* dynamically connected transport */
	IBV_EXP_DEVICE_DC_TRANSPORT             = IBV_EXP_START_FLAG,
	IBV_EXP_DEVICE_QPG                      = IBV_EXP_START_FLAG << 1, /* QP groups */
	IBV_EXP_DEVICE_UD_RSS                   = IBV_EXP_START_FLAG << 2,
	IBV_EXP_DEVICE_UD_TSS                   = IBV_EXP_START_FLAG << 3,
	/* operands other than 8 bytes */
	IBV_EXP_DEVICE_EXT_ATOMICS              = IBV_EXP_START_FLAG << 4,
	IBV_EXP_DEVICE_NOP                      = IBV_EXP_START_FLAG << 5, /* IBV_EXP_WR_NOP */
	/* user-mode memory registration */
	IBV_EXP_DEVICE_UMR                      = IBV_EXP_START_FLAG << 6,
	IBV_EXP_DEVICE_ODP                      = IBV_EXP_START_FLAG << 7, /* on-demand paging */
	IBV_EXP_DEVICE_VXLAN_SUPPORT            = IBV_EXP_START_FLAG << 10,
	/* checks checksums of received TCP and UDP */
	IBV_EXP_DEVICE_RX_CSUM_TCP_UDP_PKT      = IBV_EXP_START_FLAG << 11,
	/* checks checksums of received IPv4 headers */
	IBV_EXP_DEVICE_RX_CSUM_IP_PKT           = IBV_EXP_START_FLAG << 12,
	IBV_EXP_DEVICE_EC_OFFLOAD               = IBV_EXP_START_FLAG << 13, /* erasure coding */
	IBV_EXP_DEVICE_EXT_MASKED_ATOMICS       = IBV_EXP_START_FLAG << 14,
	/* completions distinguish TCP from UDP */
	IBV_EXP_DEVICE_RX_TCP_UDP_PKT_TYPE      = IBV_EXP_START_FLAG << 15,
	/* delivers the Ethernet FCS on request */
	IBV_EXP_DEVICE_SCATTER_FCS              = IBV_EXP_START_FLAG << 16,
	IBV_EXP_DEVICE_MEM_WINDOW               = IBV_EXP_START_FLAG << 17,
	IBV_EXP_DEVICE_WQ_DELAY_DROP            = IBV_EXP_START_FLAG << 18,
	/* IBV_EXP_ACCESS_PHYSICAL_ADDR */
	IBV_EXP_DEVICE_PHYSICAL_RANGE_MR        = IBV_EXP_START_FLAG << 19,
	IBV_EXP_DEVICE_CAPI                     = IBV_EXP_START_FLAG << 20,
	IBV_EXP_DEVICE_MEM_MGT_EXTENSIONS       = IBV_EXP_START_FLAG << 21,
	/* ibv_exp_poll_dc_info() */
	IBV_EXP_DEVICE_DC_INFO                  = IBV_EXP_START_FLAG << 22,
	IBV_EXP_DEVICE_MW_TYPE_2A               = IBV_EXP_START_FLAG << 23,
	IBV_EXP_DEVICE_MW_TYPE_2B               = IBV_EXP_START_FLAG << 24,
	IBV_EXP_DEVICE_UMR_FIXED_SIZE           = IBV_EXP_START_FLAG << 25,
	IBV_EXP_DEVICE_PACKET_BASED_CREDIT_MODE = IBV_EXP_START_FLAG << 26,
	IBV_EXP_DEVICE_CROSS_CHANNEL            = IBV_EXP_START_FLAG << 28,
	IBV_EXP_DEVICE_MANAGED_FLOW_STEERING    = IBV_EXP_START_FLAG << 29,
	/* IBV_EXP_ACCESS_ALLOCATE_MR */
	IBV_EXP_DEVICE_MR_ALLOCATE              = IBV_EXP_START_FLAG << 30,
	/* ibv_exp_reg_shared_mr() */
	IBV_EXP_DEVICE_SHARED_MR                = 1ULL << 63,
};

/*
 * ibv_exp_device_attr.comp_mask. The last bit opens comp_mask_2; it is the
 * sign bit of an int, hence the negative value.
 */
enum ibv_exp_device_attr_comp_mask {
	IBV_EXP_DEVICE_ATTR_CALC_CAP             = 1 << 0,
	IBV_EXP_DEVICE_ATTR_WITH_TIMESTAMP_MASK  = 1 << 1,
	IBV_EXP_DEVICE_ATTR_WITH_HCA_CORE_CLOCK  = 1 << 2,
	IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS        = 1 << 3,
	IBV_EXP_DEVICE_DC_RD_REQ                 = 1 << 4, /* max_dc_req_rd_atom */
	IBV_EXP_DEVICE_DC_RD_RES                 = 1 << 5, /* max_dc_res_rd_atom */
	IBV_EXP_DEVICE_ATTR_INLINE_RECV_SZ       = 1 << 6,
	IBV_EXP_DEVICE_ATTR_RSS_TBL_SZ           = 1 << 7,
	IBV_EXP_DEVICE_ATTR_EXT_ATOMIC_ARGS      = 1 << 8,
	IBV_EXP_DEVICE_ATTR_UMR                  = 1 << 9,
	IBV_EXP_DEVICE_ATTR_ODP                  = 1 << 10,
	IBV_EXP_DEVICE_ATTR_MAX_DCT              = 1 << 11,
	IBV_EXP_DEVICE_ATTR_MAX_CTX_RES_DOMAIN   = 1 << 12,
	IBV_EXP_DEVICE_ATTR_RX_HASH              = 1 << 13,
	IBV_EXP_DEVICE_ATTR_MAX_WQ_TYPE_RQ       = 1 << 14,
	IBV_EXP_DEVICE_ATTR_MAX_DEVICE_CTX       = 1 << 15,
	IBV_EXP_DEVICE_ATTR_MP_RQ                = 1 << 16,
	IBV_EXP_DEVICE_ATTR_VLAN_OFFLOADS        = 1 << 17,
	IBV_EXP_DEVICE_ATTR_EC_CAPS              = 1 << 18,
	IBV_EXP_DEVICE_ATTR_MASKED_ATOMICS       = 1 << 19,
	IBV_EXP_DEVICE_ATTR_RX_PAD_END_ALIGN     = 1 << 20,
	IBV_EXP_DEVICE_ATTR_TSO_CAPS             = 1 << 21,
	IBV_EXP_DEVICE_ATTR_PACKET_PACING_CAPS   = 1 << 22,
	IBV_EXP_DEVICE_ATTR_EC_GF_BASE           = 1 << 23, /* ec_w_mask */
	IBV_EXP_DEVICE_ATTR_OOO_CAPS             = 1 << 24,
	IBV_EXP_DEVICE_ATTR_SW_PARSING_CAPS      = 1 << 25,
	IBV_EXP_DEVICE_ATTR_ODP_MAX_SIZE         = 1 << 26,
	IBV_EXP_DEVICE_ATTR_TM_CAPS              = 1 << 27,
	IBV_EXP_DEVICE_ATTR_TUNNEL_OFFLOADS_CAPS = 1 << 28,
	IBV_EXP_DEVICE_ATTR_MAX_DM_SIZE          = 1 << 29,
	IBV_EXP_DEVICE_ATTR_TUNNELED_ATOMIC      = 1 << 30,
	IBV_EXP_DEVICE_ATTR_COMP_MASK_2          = -2147483647 - 1,
};

/* One above all bits of comp_mask; RESERVED - 1 asks for everything. */
#define IBV_EXP_DEVICE_ATTR_RESERVED (1ULL << 32)

/* ibv_exp_device_attr.comp_mask_2 */
enum ibv_exp_device_attr_comp_mask_2 {
	IBV_EXP_DEVICE_ATTR_UMR_FIXED_SIZE_CAPS = 1 << 0,
	IBV_EXP_DEVICE_ATTR_PCI_ATOMIC_CAPS     = 1 << 1,
	IBV_EXP_DEVICE_ATTR_RESERVED_2          = 1 << 2,
};

/* QP types in masks that are not indexed by enum ibv_qp_type. */
enum ibv_exp_supported_qp_types {
	IBV_EXP_QPT_RC         = 1 << 0,
	IBV_EXP_QPT_UC         = 1 << 1,
	IBV_EXP_QPT_UD         = 1 << 2,
	IBV_EXP_QPT_XRC_INIT   = 1 << 3,
	IBV_EXP_QPT_XRC_TGT    = 1 << 4,
	IBV_EXP_QPT_RAW_PACKET = 1 << 5,
	IBV_EXP_QPT_RESERVED   = 1 << 6,
};

/* Reductions that IBV_EXP_SEND_WITH_CALC can ask for. */
enum ibv_exp_calc_op {
	IBV_EXP_CALC_OP_ADD    = 0,
	IBV_EXP_CALC_OP_MAXLOC = 1,
	IBV_EXP_CALC_OP_BAND   = 2,
	IBV_EXP_CALC_OP_BXOR   = 3,
	IBV_EXP_CALC_OP_BOR    = 4,
	IBV_EXP_CALC_OP_NUMBER = 5,
};

enum ibv_exp_calc_data_type {
	IBV_EXP_CALC_DATA_TYPE_INT    = 0,
	IBV_EXP_CALC_DATA_TYPE_UINT   = 1,
	IBV_EXP_CALC_DATA_TYPE_FLOAT  = 2,
	IBV_EXP_CALC_DATA_TYPE_NUMBER = 3,
};

enum ibv_exp_calc_data_size {
	IBV_EXP_CALC_DATA_SIZE_64_BIT = 0,
	IBV_EXP_CALC_DATA_SIZE_NUMBER = 1,
};

/*
 * What reductions the device knows: bit n of each word stands for value n of
 * the enumerations above.
 */
struct ibv_exp_device_calc_cap {
	uint64_t data_types;
	uint64_t data_sizes;
	uint64_t int_ops; /* operations on signed integers */
	uint64_t uint_ops; /* operations on unsigned integers */
	uint64_t fp_ops; /* operations on floating point numbers */
};

/* Atomics on operands of 1 << n bytes. */
struct ibv_exp_ext_atomics_params {
	uint64_t log_atomic_arg_sizes; /* bit n: operands of 1 << n bytes */
	uint32_t max_fa_bit_boundary; /* largest field of a fetch-and-add, in bits */
	uint32_t log_max_atomic_inline; /* operands up to 1 << n bytes may be inline */
};

/* As above, for the masked operations. */
struct ibv_exp_masked_atomic_params {
	uint32_t max_fa_bit_boundary;
	uint32_t log_max_atomic_inline;
	uint64_t masked_log_atomic_arg_sizes;
	/* sizes whose replies are big-endian */
	uint64_t masked_log_atomic_arg_sizes_network_endianness;
};

/* Atomic operations that the device can issue on PCI. */
enum ibv_exp_pci_atomic_cap_ops_supported_sizes {
	IBV_EXP_PCI_ATOMIC_OP_SIZE_SUP_4_BYTES  = 1 << 0,
	IBV_EXP_PCI_ATOMIC_OP_SIZE_SUP_8_BYTES  = 1 << 1,
	IBV_EXP_PCI_ATOMIC_OP_SIZE_SUP_16_BYTES = 1 << 2,
};

struct ibv_exp_pci_atomic_caps {
	uint16_t fetch_add; /* IBV_EXP_PCI_ATOMIC_OP_SIZE_SUP_* */
	uint16_t swap;
	uint16_t compare_swap;
};

struct ibv_exp_umr_caps {
	uint32_t max_klm_list_size; /* entries of one memory key */
	uint32_t max_send_wqe_inline_klms; /* entries that fit into a work request */
	uint32_t max_umr_recursion_depth; /* levels of keys made from keys */
	uint32_t max_umr_stride_dimension;
};

struct ibv_exp_umr_fixed_size_caps {
	uint64_t max_entity_size; /* largest block of IBV_EXP_UMR_MR_LIST_FIXED_SIZE, in bytes */
};

/* ibv_exp_odp_caps.general_odp_caps; the tag has no exp_ in the original. */
enum ibv_odp_general_cap_bits {
	IBV_EXP_ODP_SUPPORT          = 1 << 0,
	IBV_EXP_ODP_SUPPORT_IMPLICIT = 1 << 1, /* regions that cover the whole address space */
};

/* ibv_exp_odp_caps.per_transport_caps */
enum ibv_exp_odp_transport_cap_bits {
	IBV_EXP_ODP_SUPPORT_SEND     = 1 << 0,
	IBV_EXP_ODP_SUPPORT_RECV     = 1 << 1,
	IBV_EXP_ODP_SUPPORT_WRITE    = 1 << 2,
	IBV_EXP_ODP_SUPPORT_READ     = 1 << 3,
	IBV_EXP_ODP_SUPPORT_ATOMIC   = 1 << 4,
	IBV_EXP_ODP_SUPPORT_SRQ_RECV = 1 << 5,
};

struct ibv_exp_odp_caps {
	uint64_t general_odp_caps;
	/* IBV_EXP_ODP_SUPPORT_* by transport */
	struct {
		uint32_t rc_odp_caps;
		uint32_t uc_odp_caps;
		uint32_t ud_odp_caps;
		uint32_t dc_odp_caps;
		uint32_t xrc_odp_caps;
		uint32_t raw_eth_odp_caps;
	} per_transport_caps;
};

struct ibv_exp_rx_hash_caps {
	uint32_t max_rwq_indirection_tables;
	uint32_t max_rwq_indirection_table_size; /* work queues, a power of two */
	uint8_t supported_hash_functions; /* IBV_EXP_RX_HASH_FUNC_* */
	uint64_t supported_packet_fields; /* IBV_EXP_RX_HASH_* */
	uint32_t supported_qps; /* IBV_EXP_QPT_* */
};

/* Multi-packet receive queues: where they can be used. */
enum ibv_exp_mp_rq_sup_types {
	IBV_EXP_MP_RQ_SUP_TYPE_SRQ_TM = 1 << 0,
	IBV_EXP_MP_RQ_SUP_TYPE_WQ_RQ  = 1 << 5,
};

struct ibv_exp_mp_rq_caps {
	uint32_t supported_qps; /* IBV_EXP_MP_RQ_SUP_TYPE_* */
	uint32_t allowed_shifts; /* IBV_EXP_MP_RQ_2BYTES_SHIFT */
	uint8_t min_single_wqe_log_num_of_strides;
	uint8_t max_single_wqe_log_num_of_strides;
	uint8_t min_single_stride_log_num_of_bytes;
	uint8_t max_single_stride_log_num_of_bytes;
};

struct ibv_exp_ec_caps {
	uint32_t max_ec_data_vector_count; /* data blocks of one calculation */
	uint32_t max_ec_calc_inflight_calcs;
};

/* Test with ibv_is_qpt_supported(). */
struct ibv_exp_tso_caps {
	uint32_t max_tso; /* bytes of one IBV_EXP_WR_TSO request */
	uint32_t supported_qpts; /* bit n: enum ibv_qp_type n */
};

enum ibv_exp_packet_pacing_cap_flags {
	IBV_EXP_QP_SUPPORT_BURST = 1 << 0, /* ibv_exp_qp_attr.burst_info is honoured */
};

struct ibv_exp_packet_pacing_caps {
	uint32_t qp_rate_limit_min; /* kbit/s */
	uint32_t qp_rate_limit_max; /* kbit/s */
	uint32_t supported_qpts; /* bit n: enum ibv_qp_type n */
	uint8_t cap_flags; /* IBV_EXP_QP_SUPPORT_BURST */
	uint8_t reserved[3];
};

/* Out-of-order delivery into memory. */
enum ibv_exp_ooo_transport_cap_bits {
	IBV_EXP_OOO_SUPPORT_RW_DATA_PLACEMENT = 1 << 0,
};

struct ibv_exp_ooo_caps {
	uint32_t rc_caps;
	uint32_t xrc_caps;
	uint32_t dc_caps;
	uint32_t ud_caps;
};

enum ibv_exp_sw_parsing_offloads {
	IBV_EXP_SW_PARSING      = 1 << 0,
	IBV_EXP_SW_PARSING_CSUM = 1 << 1,
	IBV_EXP_SW_PARSING_LSO  = 1 << 2,
};

struct ibv_exp_sw_parsing_caps {
	uint32_t sw_parsing_offloads;
	uint32_t supported_qpts; /* bit n: enum ibv_qp_type n */
};

enum ibv_exp_tm_cap_flags {
	IBV_EXP_TM_CAP_RC = 1 << 0,
	IBV_EXP_TM_CAP_DC = 1 << 1,
};

/* Tag matching. */
struct ibv_exp_tm_caps {
	uint32_t max_rndv_hdr_size; /* bytes of a rendezvous request, header included */
	uint32_t max_num_tags; /* tags that can wait in one queue */
	uint32_t capability_flags; /* IBV_EXP_TM_CAP_* */
	uint32_t max_ops; /* list operations that can be outstanding */
	uint32_t max_sge; /* elements of one tag's buffer */
};

enum ibv_exp_tunnel_offloads_caps {
	IBV_EXP_RAW_PACKET_CAP_TUNNELED_OFFLOAD_VXLAN  = 1 << 0,
	IBV_EXP_RAW_PACKET_CAP_TUNNELED_OFFLOAD_GRE    = 1 << 1,
	IBV_EXP_RAW_PACKET_CAP_TUNNELED_OFFLOAD_GENEVE = 1 << 2,
};

enum ibv_exp_tunneled_atomic_caps {
	IBV_EXP_TUNNELED_ATOMIC_SUPPORTED = 1 << 0,
};

/*
 * Device attributes. The head up to comp_mask is that of ibv_device_attr and
 * is always filled.
 */
struct ibv_exp_device_attr {
	char fw_ver[64];
	uint64_t node_guid;
	uint64_t sys_image_guid;
	uint64_t max_mr_size;
	uint64_t page_size_cap;
	uint32_t vendor_id;
	uint32_t vendor_part_id;
	uint32_t hw_ver;
	int max_qp;
	int max_qp_wr;
	int reserved; /* device_cap_flags in ibv_device_attr; use exp_device_cap_flags */
	int max_sge;
	int max_sge_rd;
	int max_cq;
	int max_cqe;
	int max_mr;
	int max_pd;
	int max_qp_rd_atom;
	int max_ee_rd_atom;
	int max_res_rd_atom;
	int max_qp_init_rd_atom;
	int max_ee_init_rd_atom;
	enum ibv_exp_atomic_cap exp_atomic_cap;
	int max_ee;
	int max_rdd;
	int max_mw;
	int max_raw_ipv6_qp;
	int max_raw_ethy_qp;
	int max_mcast_grp;
	int max_mcast_qp_attach;
	int max_total_mcast_qp_attach;
	int max_ah;
	int max_fmr;
	int max_map_per_fmr;
	int max_srq;
	int max_srq_wr;
	int max_srq_sge;
	uint16_t max_pkeys;
	uint8_t local_ca_ack_delay;
	uint8_t phys_port_cnt;
	uint32_t comp_mask; /* IBV_EXP_DEVICE_ATTR_*, in and out */
	struct ibv_exp_device_calc_cap calc_cap;
	uint64_t timestamp_mask; /* valid bits of a completion timestamp */
	uint64_t hca_core_clock; /* kHz */
	uint64_t exp_device_cap_flags; /* IBV_EXP_DEVICE_* */
	int max_dc_req_rd_atom;
	int max_dc_res_rd_atom;
	int inline_recv_sz; /* bytes */
	uint32_t max_rss_tbl_sz; /* work queues */
	struct ibv_exp_ext_atomics_params ext_atom;
	struct ibv_exp_umr_caps umr_caps;
	struct ibv_exp_odp_caps odp_caps;
	int max_dct;
	int max_ctx_res_domain; /* resource domains per context */
	struct ibv_exp_rx_hash_caps rx_hash_caps;
	uint32_t max_wq_type_rq;
	int max_device_ctx;
	struct ibv_exp_mp_rq_caps mp_rq_caps;
	uint16_t wq_vlan_offloads_cap; /* IBV_EXP_RECEIVE_WQ_CVLAN_* */
	struct ibv_exp_ec_caps ec_caps;
	struct ibv_exp_masked_atomic_params masked_atomic;
	int rx_pad_end_addr_align; /* bytes, 0 for none */
	struct ibv_exp_tso_caps tso_caps;
	struct ibv_exp_packet_pacing_caps packet_pacing_caps;
	uint32_t ec_w_mask; /* bit w - 1: erasure coding has symbols of w bits */
	struct ibv_exp_ooo_caps ooo_caps;
	struct ibv_exp_sw_parsing_caps sw_parsing_caps;
	uint64_t odp_mr_max_size; /* bytes */
	struct ibv_exp_tm_caps tm_caps;
	uint32_t tunnel_offloads_caps; /* IBV_EXP_RAW_PACKET_CAP_TUNNELED_OFFLOAD_* */
	uint64_t max_dm_size; /* bytes of device memory */
	uint32_t tunneled_atomic_caps; /* IBV_EXP_TUNNELED_ATOMIC_SUPPORTED */
	uint64_t comp_mask_2; /* IBV_EXP_DEVICE_ATTR_* of the second mask, in and out */
	struct ibv_exp_umr_fixed_size_caps umr_fixed_size_caps;
	struct ibv_exp_pci_atomic_caps pci_atomic_caps;
};

/*
 * ibv_exp_query_device - read the attributes of a device
 *
 * @attr  set comp_mask (and comp_mask_2, if comp_mask has
 *        IBV_EXP_DEVICE_ATTR_COMP_MASK_2) to what is wanted. On return the
 *        masks have the bits of the members that were filled: what the device
 *        or today's kernel does not know is a cleared bit, not an error. Members
 *        whose bit was not set are not written
 *
 * Returns: 0, or a positive errno value. ENOSYS: no operation table (errno is
 * not touched). EINVAL: comp_mask_2 out of range.
 * Rule: legacy inline and man.
 */
IBVEXP_CALL int ibv_exp_query_device(struct ibv_context *context,
				     struct ibv_exp_device_attr *attr);

/*
 * Opening devices
 */

enum ibv_exp_set_context_attr {
	IBV_EXP_SET_ATTR_PEER_INFO        = 1 << 0,
	IBV_EXP_SET_CONTEXT_ATTR_RESERVED = 1 << 1,
};

struct ibv_exp_open_device_attr {
	uint32_t comp_mask; /* IBV_EXP_SET_ATTR_PEER_INFO */
	struct {
		uint64_t peer_id;
		char *peer_name;
	} peer_info;
};

/*
 * ibv_exp_get_device_list - list the RDMA devices
 *
 * Free the list with ibv_free_device_list(); devices stay valid while open.
 * In the original, ibv_get_device_list() looked for devices once per process
 * and this call every time; rdma-core's looks every time as well.
 *
 * @num_devices  receives the length of the list; may be NULL
 *
 * An external function under either way to call.
 * Returns: a NULL-terminated array, or NULL with errno set.
 * Rule: legacy library.
 */
struct ibv_device **ibv_exp_get_device_list(int *num_devices);

/*
 * ibv_exp_open_device - open a device with context attributes
 *
 * Close the context with ibv_close_device().
 *
 * @attr  comp_mask must not be 0 (use ibv_open_device() then)
 *
 * Returns: the context, or NULL with errno set. EINVAL: comp_mask is 0 or out
 * of range. ENOSYS: no operation table.
 * Rule: legacy inline.
 */
IBVEXP_CALL struct ibv_context *
ibv_exp_open_device(struct ibv_device *device,
		    struct ibv_exp_open_device_attr *attr);

/* Functions that ibv_exp_get_provider_func() can return. */
enum ibv_exp_func_name {
	IBV_EXP_POST_SEND_FUNC = 0,
	IBV_EXP_POLL_CQ_FUNC   = 1,
	IBV_POST_SEND_FUNC     = 2,
	IBV_POLL_CQ_FUNC       = 3,
	IBV_POST_RECV_FUNC     = 4,
};

typedef int (*drv_post_send_func)(struct ibv_qp *qp, struct ibv_send_wr *wr,
				  struct ibv_send_wr **bad_wr);
typedef int (*drv_post_recv_func)(struct ibv_qp *qp, struct ibv_recv_wr *wr,
				  struct ibv_recv_wr **bad_wr);
typedef int (*drv_poll_cq_func)(struct ibv_cq *cq, int num_entries,
				struct ibv_wc *wc);

/*
 * ibv_exp_get_provider_func - get a data-path function without dispatch
 *
 * The pointer is valid for all objects of @context until it is closed. Cast
 * it to the drv_*_func type that fits @name.
 *
 * Returns: the function, or NULL with errno ENOSYS (no operation table, or
 * unknown name).
 * Rule: legacy inline.
 */
IBVEXP_CALL void *ibv_exp_get_provider_func(struct ibv_context *context,
					    enum ibv_exp_func_name name);

/*
 * Ports and GIDs
 */

/* ibv_exp_port_attr.mask1: one bit per member */
enum {
	IBV_EXP_QUERY_PORT_STATE           = 1 << 0,
	IBV_EXP_QUERY_PORT_MAX_MTU         = 1 << 1,
	IBV_EXP_QUERY_PORT_ACTIVE_MTU      = 1 << 2,
	IBV_EXP_QUERY_PORT_GID_TBL_LEN     = 1 << 3,
	IBV_EXP_QUERY_PORT_CAP_FLAGS       = 1 << 4,
	IBV_EXP_QUERY_PORT_MAX_MSG_SZ      = 1 << 5,
	IBV_EXP_QUERY_PORT_BAD_PKEY_CNTR   = 1 << 6,
	IBV_EXP_QUERY_PORT_QKEY_VIOL_CNTR  = 1 << 7,
	IBV_EXP_QUERY_PORT_PKEY_TBL_LEN    = 1 << 8,
	IBV_EXP_QUERY_PORT_LID             = 1 << 9,
	IBV_EXP_QUERY_PORT_SM_LID          = 1 << 10,
	IBV_EXP_QUERY_PORT_LMC             = 1 << 11,
	IBV_EXP_QUERY_PORT_MAX_VL_NUM      = 1 << 12,
	IBV_EXP_QUERY_PORT_SM_SL           = 1 << 13,
	IBV_EXP_QUERY_PORT_SUBNET_TIMEOUT  = 1 << 14,
	IBV_EXP_QUERY_PORT_INIT_TYPE_REPLY = 1 << 15,
	IBV_EXP_QUERY_PORT_ACTIVE_WIDTH    = 1 << 16,
	IBV_EXP_QUERY_PORT_ACTIVE_SPEED    = 1 << 17,
	IBV_EXP_QUERY_PORT_PHYS_STATE      = 1 << 18,
	IBV_EXP_QUERY_PORT_LINK_LAYER      = 1 << 19,
	IBV_EXP_QUERY_PORT_STD_MASK        = 0xfffff, /* what plain ibv_query_port() answers */
	IBV_EXP_QUERY_PORT_MASK            = IBV_EXP_QUERY_PORT_STD_MASK,
};

/* ibv_exp_port_attr.comp_mask */
enum ibv_exp_query_port_attr_comp_mask {
	IBV_EXP_QUERY_PORT_ATTR_MASK1    = 1 << 0,
	IBV_EXP_QUERY_PORT_ATTR_RESERVED = 1 << 1,
	IBV_EXP_QUERY_PORT_ATTR_MASKS    = IBV_EXP_QUERY_PORT_ATTR_RESERVED - 1,
};

/*
 * The 48 bytes of the legacy struct ibv_port_attr. rdma-core appended members
 * to the structure of that name, which therefore cannot be part of the union
 * below any more; member names and offsets are the same.
 */
struct ibvexp_port_attr_48 {
	enum ibv_port_state state;
	enum ibv_mtu max_mtu;
	enum ibv_mtu active_mtu;
	int gid_tbl_len;
	uint32_t port_cap_flags;
	uint32_t max_msg_sz;
	uint32_t bad_pkey_cntr;
	uint32_t qkey_viol_cntr;
	uint16_t pkey_tbl_len;
	uint16_t lid;
	uint16_t sm_lid;
	uint8_t lmc;
	uint8_t max_vl_num;
	uint8_t sm_sl;
	uint8_t subnet_timeout;
	uint8_t init_type_reply;
	uint8_t active_width;
	uint8_t active_speed;
	uint8_t phys_state;
	uint8_t link_layer;
	uint8_t reserved;
};

struct ibv_exp_port_attr {
	__extension__ union {
		__extension__ struct {
			enum ibv_port_state state;
			enum ibv_mtu max_mtu;
			enum ibv_mtu active_mtu;
			int gid_tbl_len;
			uint32_t port_cap_flags;
			uint32_t max_msg_sz; /* bytes */
			uint32_t bad_pkey_cntr;
			uint32_t qkey_viol_cntr;
			uint16_t pkey_tbl_len;
			uint16_t lid;
			uint16_t sm_lid;
			uint8_t lmc;
			uint8_t max_vl_num;
			uint8_t sm_sl;
			uint8_t subnet_timeout;
			uint8_t init_type_reply;
			uint8_t active_width;
			uint8_t active_speed;
			uint8_t phys_state;
			uint8_t link_layer;
			uint8_t reserved;
		};
		struct ibvexp_port_attr_48 port_attr; /* the same, as one object */
	};
	uint32_t comp_mask; /* IBV_EXP_QUERY_PORT_ATTR_MASK1 */
	uint32_t mask1; /* IBV_EXP_QUERY_PORT_* */
};

/*
 * ibv_exp_query_port - read port attributes, all or some
 *
 * @port_num   from 1
 * @port_attr  comp_mask 0 asks for everything, as ibv_query_port();
 *             IBV_EXP_QUERY_PORT_ATTR_MASK1 for the members that mask1 names
 *
 * Returns: 0 on success. A positive errno value if the device refuses;
 * -EINVAL with errno set for a wrong mask. Without an operation table the
 * plain ibv_query_port() answers.
 * Rule: legacy inline.
 */
IBVEXP_CALL int ibv_exp_query_port(struct ibv_context *context,
				   uint8_t port_num,
				   struct ibv_exp_port_attr *port_attr);

/* Unlike in rdma-core, InfiniBand and RoCE v1 share one type. */
enum ibv_exp_roce_gid_type {
	IBV_EXP_IB_ROCE_V1_GID_TYPE = 0,
	IBV_EXP_ROCE_V2_GID_TYPE    = 1,
	IBV_EXP_ROCE_V1_5_GID_TYPE  = 2,
};

/* ibv_exp_gid_attr.comp_mask */
enum ibv_exp_query_gid_attr {
	IBV_EXP_QUERY_GID_ATTR_TYPE     = 1 << 0,
	IBV_EXP_QUERY_GID_ATTR_GID      = 1 << 1,
	IBV_EXP_QUERY_GID_ATTR_RESERVED = 1 << 2,
};

struct ibv_exp_gid_attr {
	uint32_t comp_mask; /* IBV_EXP_QUERY_GID_ATTR_*, what to fill */
	enum ibv_exp_roce_gid_type type;
	union ibv_gid gid;
};

/*
 * ibv_exp_query_gid_attr - read type and value of an entry of the GID table
 *
 * @port_num  from 1
 * @index     entry of the port's table, from 0
 *
 * Returns: 0, or a positive errno value. ENOSYS: no operation table. EINVAL:
 * comp_mask out of range.
 * Rule: legacy inline.
 */
IBVEXP_CALL int ibv_exp_query_gid_attr(struct ibv_context *context,
				       uint8_t port_num, unsigned int index,
				       struct ibv_exp_gid_attr *attr);

/*
 * Clock
 */

enum ibv_exp_clock_info_comp_mask {
	IBV_EXP_CLOCK_INFO_RESERVED = 1 << 0,
};

/*
 * A moment on both clocks and how to get from one to the other:
 * nanoseconds = (cycles * mult + fraction) >> shift.
 */
struct ibv_exp_clock_info {
	uint64_t cycles; /* the moment, in device cycles */
	uint64_t nsec; /* the same moment, in ns since the epoch */
	uint64_t frac; /* what nsec lost, in units of 2^-shift ns */
	uint64_t mask; /* width of the cycle counter */
	uint32_t shift;
	uint32_t mult;
	uint32_t comp_mask;
};

/* ibv_exp_values.comp_mask and the q_values of ibv_exp_query_values() */
enum ibv_exp_values_comp_mask {
	IBV_EXP_VALUES_HW_CLOCK_NS = 1 << 0,
	IBV_EXP_VALUES_HW_CLOCK    = 1 << 1,
	IBV_EXP_VALUES_CLOCK_INFO  = 1 << 2,
	IBV_EXP_VALUES_RESERVED    = 1 << 3,
};

struct ibv_exp_values {
	uint32_t comp_mask; /* IBV_EXP_VALUES_*, in and out */
	uint64_t hwclock_ns; /* device clock, ns */
	uint64_t hwclock; /* device clock, cycles */
	struct ibv_exp_clock_info clock_info;
};

/*
 * ibv_exp_query_values - read the device's clock
 *
 * @q_values  IBV_EXP_VALUES_* wanted
 * @values    comp_mask must be in range on input and says on return what
 *            was filled
 *
 * A clock_info grows stale: read it again well within half of the cycle
 * counter's period.
 *
 * Returns: 0 on success. -ENOSYS with errno set: no operation table. EINVAL
 * (positive, errno set): values->comp_mask out of range. Otherwise what the
 * library answers, negative.
 * Rule: legacy inline and man.
 */
IBVEXP_CALL int ibv_exp_query_values(struct ibv_context *context, int q_values,
				     struct ibv_exp_values *values);

/*
 * ibv_exp_cqe_ts_to_ns - convert a completion timestamp to wall-clock time
 *
 * Pure arithmetic. Timestamps up to half the counter's period before or after
 * the moment in @clock_info are converted correctly, also across a wrap of
 * the counter.
 *
 * @ts  device cycles, ibv_exp_wc.timestamp
 *
 * Returns: nanoseconds since the epoch; 0 with errno EINVAL if
 * clock_info->comp_mask is not 0.
 * Rule: legacy inline.
 */
IBVEXP_CALL uint64_t
ibv_exp_cqe_ts_to_ns(struct ibv_exp_clock_info *clock_info, uint64_t ts);

/*
 * Private environment
 */

/* Longest value of a variable, terminator included. */
#define VERBS_MAX_ENV_VAL 4096

/* One variable of a context, and the list of them. */
struct verbs_env_item {
	char *name;
	char *value;
	struct verbs_env_item *next;
};

struct verbs_environment {
	struct verbs_env_item *head;
	pthread_mutex_t mtx;
};

/*
 * ibv_exp_use_priv_env - give a context variables of its own
 *
 * From now on ibv_exp_setenv() on @context does not reach other contexts.
 * Every context has its own from the start, so this succeeds and changes
 * nothing.
 *
 * Returns: 0, or -1 with errno set (ENOSYS: no operation table).
 * Rule: legacy inline.
 */
IBVEXP_CALL int ibv_exp_use_priv_env(struct ibv_context *context);

/*
 * ibv_exp_setenv - set a tuning variable for one context
 *
 * Objects of @context made later see the value; the environment of the
 * process is not changed. Without an operation table it is: the call is then
 * setenv(3).
 *
 * Returns: 0, or -1 with errno set.
 * Rule: legacy inline.
 */
IBVEXP_CALL int ibv_exp_setenv(struct ibv_context *context, const char *name,
			       const char *value, int overwrite);

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_VERBS_EXP_DEVICE_H */
