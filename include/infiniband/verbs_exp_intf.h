/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Experimental verbs: accelerated verbs. Resource domains say how the objects
 * in them are used, interface families are tables of functions specialised
 * for one object.
 */
#ifndef INFINIBAND_VERBS_EXP_INTF_H
#define INFINIBAND_VERBS_EXP_INTF_H

#ifndef INFINIBAND_VERBS_EXP_H
#error "include <infiniband/verbs_exp.h>, not its parts"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Resource domains
 */

enum ibv_exp_thread_model {
	IBV_EXP_THREAD_SAFE   = 0, /* the library locks; default */
	IBV_EXP_THREAD_UNSAFE = 1, /* the program locks around the domain's objects */
	IBV_EXP_THREAD_SINGLE = 2, /* one thread uses the domain's objects */
};

enum ibv_exp_msg_model {
	IBV_EXP_MSG_DEFAULT           = 0,
	IBV_EXP_MSG_LOW_LATENCY       = 1,
	IBV_EXP_MSG_HIGH_BW           = 2,
	IBV_EXP_MSG_FORCE_LOW_LATENCY = 3, /* fail rather than do without dedicated hardware */
};

/* ibv_exp_res_domain_init_attr.comp_mask */
enum ibv_exp_res_domain_init_attr_comp_mask {
	IBV_EXP_RES_DOMAIN_THREAD_MODEL = 1 << 0,
	IBV_EXP_RES_DOMAIN_MSG_MODEL    = 1 << 1,
	IBV_EXP_RES_DOMAIN_RESERVED     = 1 << 2,
};

struct ibv_exp_res_domain_init_attr {
	uint32_t comp_mask; /* IBV_EXP_RES_DOMAIN_* */
	enum ibv_exp_thread_model thread_model;
	enum ibv_exp_msg_model msg_model;
};

enum ibv_exp_destroy_res_domain_comp_mask {
	IBV_EXP_DESTROY_RES_DOMAIN_RESERVED = 1 << 0,
};

struct ibv_exp_destroy_res_domain_attr {
	uint32_t comp_mask;
};

struct ibv_exp_res_domain {
	struct ibv_context *context;
};

/*
 * ibv_exp_create_res_domain - create a resource domain
 *
 * Name it when creating queue pairs, work queues and completion queues. Free
 * with ibv_exp_destroy_res_domain().
 *
 * Returns: the domain, or NULL with errno set. ENOSYS: no operation table.
 * EINVAL: comp_mask out of range.
 * Rule: legacy inline and man.
 */
IBVEXP_CALL struct ibv_exp_res_domain *
ibv_exp_create_res_domain(struct ibv_context *context,
			  struct ibv_exp_res_domain_init_attr *attr);

/*
 * ibv_exp_destroy_res_domain - destroy a resource domain
 *
 * @attr  may be NULL
 *
 * Returns: 0, or a positive errno value. ENOSYS (errno set): no operation
 * table. EINVAL: objects still use it.
 * Rule: legacy inline and man.
 */
IBVEXP_CALL int
ibv_exp_destroy_res_domain(struct ibv_context *context,
			   struct ibv_exp_res_domain *res_dom,
			   struct ibv_exp_destroy_res_domain_attr *attr);

/*
 * Interface families
 */

enum ibv_exp_query_intf_flags {
	IBV_EXP_QUERY_INTF_FLAG_ENABLE_CHECKS = 1 << 0, /* functions check their arguments */
};

enum ibv_exp_intf_family {
	IBV_EXP_INTF_QP_BURST = 0,
	IBV_EXP_INTF_CQ       = 1,
	IBV_EXP_INTF_WQ       = 2,
	IBV_EXP_INTF_RESERVED = 3,
};

enum ibv_exp_experimental_intf_family {
	IBV_EXP_EXPERIMENTAL_INTF_RESERVED = 0,
};

enum ibv_exp_intf_scope {
	IBV_EXP_INTF_GLOBAL              = 0,
	IBV_EXP_INTF_EXPERIMENTAL        = 1,
	IBV_EXP_INTF_VENDOR              = 2,
	IBV_EXP_INTF_VENDOR_EXPERIMENTAL = 3,
};

/* Spelled as in the original. */
enum ibv_exp_query_intf_status {
	IBV_EXP_INTF_STAT_OK                         = 0,
	IBV_EXP_INTF_STAT_VENDOR_NOT_SUPPORTED       = 1,
	IBV_EXP_INTF_STAT_INTF_NOT_SUPPORTED         = 2,
	IBV_EXP_INTF_STAT_VERSION_NOT_SUPPORTED      = 3,
	IBV_EXP_INTF_STAT_INVAL_PARARM               = 4,
	IBV_EXP_INTF_STAT_INVAL_OBJ_STATE            = 5,
	IBV_EXP_INTF_STAT_INVAL_OBJ                  = 6,
	IBV_EXP_INTF_STAT_FLAGS_NOT_SUPPORTED        = 7,
	IBV_EXP_INTF_STAT_FAMILY_FLAGS_NOT_SUPPORTED = 8,
};

enum ibv_exp_query_intf_comp_mask {
	IBV_EXP_QUERY_INTF_RESERVED = 1 << 0,
};

struct ibv_exp_query_intf_params {
	uint32_t flags; /* IBV_EXP_QUERY_INTF_FLAG_* */
	enum ibv_exp_intf_scope intf_scope;
	uint64_t vendor_guid; /* for the vendor scopes */
	uint32_t intf; /* enum ibv_exp_intf_family */
	uint32_t intf_version; /* 0, 1, ...: which of the family's structures */
	void *obj; /* queue pair, completion queue or work queue */
	void *family_params;
	uint32_t family_flags; /* e.g. IBV_EXP_QP_BURST_CREATE_* */
	uint32_t comp_mask;
};

enum ibv_exp_release_intf_comp_mask {
	IBV_EXP_RELEASE_INTF_RESERVED = 1 << 0,
};

struct ibv_exp_release_intf_params {
	uint32_t comp_mask;
};

/*
 * ibv_exp_query_intf - get the functions of a family for an object
 *
 * A QP must be in INIT or later. The table is valid until
 * ibv_exp_release_intf() or the end of the object.
 *
 * @status  receives the outcome; may be NULL
 *
 * Returns: the family's structure, or NULL. Without an operation table errno
 * is ENOSYS and *status is not written.
 * Rule: legacy inline and man.
 */
IBVEXP_CALL void *ibv_exp_query_intf(struct ibv_context *context,
				     struct ibv_exp_query_intf_params *params,
				     enum ibv_exp_query_intf_status *status);

/*
 * ibv_exp_release_intf - give the functions of a family back
 *
 * @params  may be NULL
 *
 * Returns: 0, or a positive errno value. ENOSYS (errno set): no operation
 * table.
 * Rule: legacy inline and man.
 */
IBVEXP_CALL int ibv_exp_release_intf(struct ibv_context *context, void *intf,
				     struct ibv_exp_release_intf_params *params);

/* family_flags of IBV_EXP_INTF_QP_BURST */
enum ibv_exp_qp_burst_family_create_flags {
	IBV_EXP_QP_BURST_CREATE_DISABLE_ETH_LOOPBACK        = 1 << 0,
	IBV_EXP_QP_BURST_CREATE_ENABLE_MULTI_PACKET_SEND_WR = 1 << 1,
};

/* flags of the functions of IBV_EXP_INTF_QP_BURST */
enum ibv_exp_qp_burst_family_flags {
	IBV_EXP_QP_BURST_SIGNALED  = 1 << 0,
	IBV_EXP_QP_BURST_SOLICITED = 1 << 1,
	IBV_EXP_QP_BURST_IP_CSUM   = 1 << 2,
	IBV_EXP_QP_BURST_TUNNEL    = 1 << 3, /* checksums are those of a tunnelled packet */
	IBV_EXP_QP_BURST_FENCE     = 1 << 4,
};

/*
 * IBV_EXP_INTF_QP_BURST, version 0. The pending functions write requests and
 * leave the doorbell to send_flush; send_burst rings it. send_burst and
 * recv_burst use one element per message. Lengths are in bytes; the inline
 * variants copy the data before they return. All return 0 or an error.
 */
struct ibv_exp_qp_burst_family {
	int (*send_pending)(struct ibv_qp *qp, uint64_t addr, uint32_t length,
			    uint32_t lkey, uint32_t flags);
	int (*send_pending_inline)(struct ibv_qp *qp, void *addr,
				   uint32_t length, uint32_t flags);
	int (*send_pending_sg_list)(struct ibv_qp *qp, struct ibv_sge *sg_list,
				    uint32_t num, uint32_t flags);
	int (*send_flush)(struct ibv_qp *qp);
	int (*send_burst)(struct ibv_qp *qp, struct ibv_sge *msg_list,
			  uint32_t num, uint32_t flags);
	int (*recv_burst)(struct ibv_qp *qp, struct ibv_sge *msg_list,
			  uint32_t num);
};

/* IBV_EXP_INTF_QP_BURST, version 1: adds the insertion of a VLAN tag. */
struct ibv_exp_qp_burst_family_v1 {
	int (*send_pending)(struct ibv_qp *qp, uint64_t addr, uint32_t length,
			    uint32_t lkey, uint32_t flags);
	int (*send_pending_inline)(struct ibv_qp *qp, void *addr,
				   uint32_t length, uint32_t flags);
	int (*send_pending_sg_list)(struct ibv_qp *qp, struct ibv_sge *sg_list,
				    uint32_t num, uint32_t flags);
	int (*send_flush)(struct ibv_qp *qp);
	int (*send_burst)(struct ibv_qp *qp, struct ibv_sge *msg_list,
			  uint32_t num, uint32_t flags);
	int (*recv_burst)(struct ibv_qp *qp, struct ibv_sge *msg_list,
			  uint32_t num);
	int (*send_pending_vlan)(struct ibv_qp *qp, uint64_t addr,
				 uint32_t length, uint32_t lkey,
				 uint32_t flags, uint16_t *vlan_tci);
	int (*send_pending_inline_vlan)(struct ibv_qp *qp, void *addr,
					uint32_t length, uint32_t flags,
					uint16_t *vlan_tci);
	int (*send_pending_sg_list_vlan)(struct ibv_qp *qp,
					 struct ibv_sge *sg_list, uint32_t num,
					 uint32_t flags, uint16_t *vlan_tci);
};

/* IBV_EXP_INTF_WQ, version 0. One element per message in recv_burst. */
struct ibv_exp_wq_family {
	int (*recv_sg_list)(struct ibv_exp_wq *wq, struct ibv_sge *sg_list,
			    uint32_t num);
	int (*recv_burst)(struct ibv_exp_wq *wq, struct ibv_sge *msg_list,
			  uint32_t num);
};

/* flags that the functions of IBV_EXP_INTF_CQ report */
enum ibv_exp_cq_family_flags {
	IBV_EXP_CQ_RX_IP_CSUM_OK            = 1 << 0,
	IBV_EXP_CQ_RX_TCP_UDP_CSUM_OK       = 1 << 1,
	IBV_EXP_CQ_RX_IPV4_PACKET           = 1 << 2,
	IBV_EXP_CQ_RX_IPV6_PACKET           = 1 << 3,
	IBV_EXP_CQ_RX_TUNNEL_PACKET         = 1 << 4,
	IBV_EXP_CQ_RX_OUTER_IP_CSUM_OK      = 1 << 5,
	IBV_EXP_CQ_RX_OUTER_TCP_UDP_CSUM_OK = 1 << 6,
	IBV_EXP_CQ_RX_OUTER_IPV4_PACKET     = 1 << 7,
	IBV_EXP_CQ_RX_OUTER_IPV6_PACKET     = 1 << 8,
	IBV_EXP_CQ_RX_MULTI_PACKET_LAST_V1  = 1 << 9,
	IBV_EXP_CQ_RX_CVLAN_STRIPPED_V1     = 1 << 10,
	IBV_EXP_CQ_RX_TCP_PACKET            = 1 << 11,
	IBV_EXP_CQ_RX_UDP_PACKET            = 1 << 12,
	IBV_EXP_CQ_RX_WITH_TIMESTAMP        = 1 << 13,
};

/*
 * IBV_EXP_INTF_CQ, version 0.
 *
 * poll_cnt takes up to @max completions and returns how many, -1 on error; an
 * erroneous completion stays for ibv_poll_cq(). The others take one
 * completion of a receive and return its bytes, 0 if there is none, -1 on
 * error or for any other completion. @buf and @inl are for data that arrived
 * inside the completion.
 */
struct ibv_exp_cq_family {
	int32_t (*poll_cnt)(struct ibv_cq *cq, uint32_t max);
	int32_t (*poll_length)(struct ibv_cq *cq, void *buf, uint32_t *inl);
	int32_t (*poll_length_flags)(struct ibv_cq *cq, void *buf,
				     uint32_t *inl, uint32_t *flags);
};

/*
 * IBV_EXP_INTF_CQ, version 1: multi-packet buffers (@offset is the packet's
 * place in the buffer), stripped VLAN tags, timestamps.
 */
struct ibv_exp_cq_family_v1 {
	int32_t (*poll_cnt)(struct ibv_cq *cq, uint32_t max);
	int32_t (*poll_length)(struct ibv_cq *cq, void *buf, uint32_t *inl);
	int32_t (*poll_length_flags)(struct ibv_cq *cq, void *buf,
				     uint32_t *inl, uint32_t *flags);
	int32_t (*poll_length_flags_mp_rq)(struct ibv_cq *cq, uint32_t *offset,
					   uint32_t *flags);
	int32_t (*poll_length_flags_cvlan)(struct ibv_cq *cq, void *buf,
					   uint32_t *inl, uint32_t *flags,
					   uint16_t *vlan_tci);
	int32_t (*poll_length_flags_mp_rq_cvlan)(struct ibv_cq *cq,
						 uint32_t *offset,
						 uint32_t *flags,
						 uint16_t *vlan_tci);
	int32_t (*poll_length_flags_ts)(struct ibv_cq *cq, void *buf,
					uint32_t *inl, uint32_t *flags,
					uint64_t *timestamp);
	int32_t (*poll_length_flags_mp_rq_ts)(struct ibv_cq *cq,
					      uint32_t *offset,
					      uint32_t *flags,
					      uint64_t *timestamp);
	int32_t (*poll_length_flags_cvlan_ts)(struct ibv_cq *cq, void *buf,
					      uint32_t *inl, uint32_t *flags,
					      uint16_t *vlan_tci,
					      uint64_t *timestamp);
	int32_t (*poll_length_flags_mp_rq_cvlan_ts)(struct ibv_cq *cq,
						    uint32_t *offset,
						    uint32_t *flags,
						    uint16_t *vlan_tci,
						    uint64_t *timestamp);
};

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_VERBS_EXP_INTF_H */
