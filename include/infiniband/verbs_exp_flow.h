/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Experimental verbs: flow steering. A rule is one ibv_exp_flow_attr, directly
 * followed in memory by num_of_specs specifications. Sizes and type codes
 * differ from rdma-core's ibv_flow_*: attribute 24 bytes instead of 20,
 * extended IPv6 0x33.
 *
 * In a specification a bit takes part if it is set in mask; addresses, ports
 * and tags are in network byte order.
 */
#ifndef INFINIBAND_VERBS_EXP_FLOW_H
#define INFINIBAND_VERBS_EXP_FLOW_H

#ifndef INFINIBAND_VERBS_EXP_H
#error "include <infiniband/verbs_exp.h>, not its parts"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ibv_exp_flow_attr.flags */
enum ibv_exp_flow_flags {
	IBV_EXP_FLOW_ATTR_FLAGS_ALLOW_LOOP_BACK = 1 << 0,
};

enum ibv_exp_flow_attr_type {
	IBV_EXP_FLOW_ATTR_NORMAL      = 0, /* what the specifications say */
	IBV_EXP_FLOW_ATTR_ALL_DEFAULT = 1, /* what no other rule takes */
	IBV_EXP_FLOW_ATTR_MC_DEFAULT  = 2, /* multicast that no other rule takes */
	IBV_EXP_FLOW_ATTR_SNIFFER     = 3, /* a copy of everything */
};

/* Type of a specification; INNER is or-ed to it for the tunnelled headers. */
enum ibv_exp_flow_spec_type {
	IBV_EXP_FLOW_SPEC_ETH          = 0x20,
	IBV_EXP_FLOW_SPEC_IB           = 0x21,
	IBV_EXP_FLOW_SPEC_IPV4         = 0x30,
	IBV_EXP_FLOW_SPEC_IPV6         = 0x31,
	IBV_EXP_FLOW_SPEC_IPV4_EXT     = 0x32,
	IBV_EXP_FLOW_SPEC_IPV6_EXT     = 0x33,
	IBV_EXP_FLOW_SPEC_TCP          = 0x40,
	IBV_EXP_FLOW_SPEC_UDP          = 0x41,
	IBV_EXP_FLOW_SPEC_VXLAN_TUNNEL = 0x50,
	IBV_EXP_FLOW_SPEC_INNER        = 0x100,
	IBV_EXP_FLOW_SPEC_ACTION_TAG   = 0x1000,
	IBV_EXP_FLOW_SPEC_ACTION_DROP  = 0x1001,
};

/* Bytes of an Ethernet address; rdma-core 44 defines the same name. */
#ifndef ETHERNET_LL_SIZE
#define ETHERNET_LL_SIZE 6
#endif

struct ibv_exp_flow_eth_filter {
	uint8_t dst_mac[ETHERNET_LL_SIZE];
	uint8_t src_mac[ETHERNET_LL_SIZE];
	uint16_t ether_type; /* network byte order */
	uint16_t vlan_tag; /* network byte order */
};

struct ibv_exp_flow_spec_eth {
	enum ibv_exp_flow_spec_type type;
	uint16_t size; /* bytes of this structure */
	struct ibv_exp_flow_eth_filter val;
	struct ibv_exp_flow_eth_filter mask;
};

struct ibv_exp_flow_ib_filter {
	uint32_t qpn;
	uint8_t dst_gid[16];
};

struct ibv_exp_flow_spec_ib {
	enum ibv_exp_flow_spec_type type;
	uint16_t size;
	struct ibv_exp_flow_ib_filter val;
	struct ibv_exp_flow_ib_filter mask;
};

struct ibv_exp_flow_ipv4_filter {
	uint32_t src_ip;
	uint32_t dst_ip;
};

struct ibv_exp_flow_spec_ipv4 {
	enum ibv_exp_flow_spec_type type;
	uint16_t size;
	struct ibv_exp_flow_ipv4_filter val;
	struct ibv_exp_flow_ipv4_filter mask;
};

struct ibv_exp_flow_ipv4_ext_filter {
	uint32_t src_ip;
	uint32_t dst_ip;
	uint8_t proto;
	uint8_t tos;
	uint8_t ttl;
	uint8_t flags;
};

struct ibv_exp_flow_spec_ipv4_ext {
	enum ibv_exp_flow_spec_type type;
	uint16_t size;
	struct ibv_exp_flow_ipv4_ext_filter val;
	struct ibv_exp_flow_ipv4_ext_filter mask;
};

struct ibv_exp_flow_ipv6_filter {
	uint8_t src_ip[16];
	uint8_t dst_ip[16];
};

struct ibv_exp_flow_spec_ipv6 {
	enum ibv_exp_flow_spec_type type;
	uint16_t size;
	struct ibv_exp_flow_ipv6_filter val;
	struct ibv_exp_flow_ipv6_filter mask;
};

struct ibv_exp_flow_ipv6_ext_filter {
	uint8_t src_ip[16];
	uint8_t dst_ip[16];
	uint32_t flow_label;
	uint8_t next_hdr;
	uint8_t traffic_class;
	uint8_t hop_limit;
};

struct ibv_exp_flow_spec_ipv6_ext {
	enum ibv_exp_flow_spec_type type;
	uint16_t size;
	struct ibv_exp_flow_ipv6_ext_filter val;
	struct ibv_exp_flow_ipv6_ext_filter mask;
};

struct ibv_exp_flow_tcp_udp_filter {
	uint16_t dst_port;
	uint16_t src_port;
};

struct ibv_exp_flow_spec_tcp_udp {
	enum ibv_exp_flow_spec_type type;
	uint16_t size;
	struct ibv_exp_flow_tcp_udp_filter val;
	struct ibv_exp_flow_tcp_udp_filter mask;
};

struct ibv_exp_flow_tunnel_filter {
	uint32_t tunnel_id;
};

/* VXLAN: tunnel_id is the network identifier. */
struct ibv_exp_flow_spec_tunnel {
	enum ibv_exp_flow_spec_type type;
	uint16_t size;
	struct ibv_exp_flow_tunnel_filter val;
	struct ibv_exp_flow_tunnel_filter mask;
};

/* Mark matching packets; the mark arrives with the completion. */
struct ibv_exp_flow_spec_action_tag {
	enum ibv_exp_flow_spec_type type;
	uint16_t size;
	uint32_t tag_id;
};

/* Drop matching packets. */
struct ibv_exp_flow_spec_action_drop {
	enum ibv_exp_flow_spec_type type;
	uint16_t size;
};

/* Any specification. */
__extension__ struct ibv_exp_flow_spec {
	__extension__ union {
		struct {
			uint32_t type;
			uint16_t size;
		} hdr;
		struct ibv_exp_flow_spec_ib ib;
		struct ibv_exp_flow_spec_eth eth;
		struct ibv_exp_flow_spec_ipv4 ipv4;
		struct ibv_exp_flow_spec_ipv4_ext ipv4_ext;
		struct ibv_exp_flow_spec_tcp_udp tcp_udp;
		struct ibv_exp_flow_spec_ipv6 ipv6;
		struct ibv_exp_flow_spec_ipv6_ext ipv6_ext;
		struct ibv_exp_flow_spec_tunnel tunnel;
		struct ibv_exp_flow_spec_action_tag flow_tag;
		struct ibv_exp_flow_spec_action_drop drop;
	};
};

struct ibv_exp_flow_attr {
	enum ibv_exp_flow_attr_type type;
	uint16_t size; /* bytes of this structure */
	uint16_t priority; /* 0 is highest */
	uint8_t num_of_specs; /* specifications that follow */
	uint8_t port; /* from 1 */
	uint32_t flags; /* IBV_EXP_FLOW_ATTR_FLAGS_* */
	uint64_t reserved; /* must be 0 */
};

struct ibv_exp_flow {
	struct ibv_context *context;
	uint32_t handle;
};

/*
 * ibv_exp_create_flow - attach a steering rule to a queue pair
 *
 * Free with ibv_exp_destroy_flow(), before the QP.
 *
 * @flow  if reserved is not 0, a line on stderr says so and it is cleared
 *
 * Returns: the rule, or NULL; errno is set except when there is no operation
 * table.
 * Rule: legacy inline and man.
 */
IBVEXP_CALL struct ibv_exp_flow *
ibv_exp_create_flow(struct ibv_qp *qp, struct ibv_exp_flow_attr *flow);

/*
 * ibv_exp_destroy_flow - remove a steering rule
 *
 * Returns: 0, or an errno value (-ENOSYS: no operation table).
 * Rule: legacy inline and man.
 */
IBVEXP_CALL int ibv_exp_destroy_flow(struct ibv_exp_flow *flow_id);

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_VERBS_EXP_FLOW_H */
