// Every conversion, member by member. Sources hold another value in each member, so
// that one that is left out, or swapped with its neighbour, shows.
#include <catch.h>

#include <cstring>

#include "translate/convert/clock_convert.h"
#include "translate/convert/cq_convert.h"
#include "translate/convert/dct_convert.h"
#include "translate/convert/device_convert.h"
#include "translate/convert/port_convert.h"
#include "translate/convert/qp_convert.h"
#include "translate/convert/srq_convert.h"
#include "translate/convert/wc_convert.h"
#include "translate/convert/wq_convert.h"
#include "translate/convert/wr_convert.h"

using namespace ibvexp;
using namespace ibvexp::translate;

namespace {

// No two of the first 256 bytes alike. Enumerations are the caller's to set: not
// every number is a value of theirs.
template <class T>
T distinct(unsigned char first = 1) {
  T out;
  auto *bytes = reinterpret_cast<unsigned char *>(&out);
  for (std::size_t i = 0; i < sizeof(out); ++i)
    bytes[i] = static_cast<unsigned char>(first + i * 37);
  return out;
}

template <class T>
bool same(const T &a, const T &b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

bool every(FeatureId) { return true; }

ibv_exp_device_attr reported(const DeviceFacts &facts, std::uint64_t mask,
                             std::uint64_t mask_2 = 0) {
  ibv_exp_device_attr attr{};
  attr.comp_mask = static_cast<std::uint32_t>(mask);
  attr.comp_mask_2 = static_cast<std::uint32_t>(mask_2);
  to_legacy(facts, every, attr);
  INFO("asked for " << mask);
  CHECK((attr.comp_mask & mask) == static_cast<std::uint32_t>(mask));
  return attr;
}

}  // namespace

#define SAME(member) CHECK(to.member == from.member)

TEST_CASE(
    "members of ibv_exp_qp_attr "
    "[row:IBV_EXP_QP_RETRY_CNT][row:IBV_EXP_QP_PATH_MIG_STATE][row:IBV_EXP_QP_ALT_PATH]") {
  auto from = distinct<ibv_exp_qp_attr>();
  from.qp_state = IBV_QPS_RTR;
  from.cur_qp_state = IBV_QPS_INIT;
  from.path_mtu = IBV_MTU_1024;
  from.path_mig_state = IBV_MIG_ARMED;
  const ibv_qp_attr to = to_modern(from, IBV_EXP_QP_RATE_LIMIT);
  SAME(qp_state);
  SAME(cur_qp_state);
  SAME(path_mtu);
  SAME(path_mig_state);
  SAME(qkey);
  SAME(rq_psn);
  SAME(sq_psn);
  SAME(dest_qp_num);
  CHECK(to.qp_access_flags == static_cast<unsigned>(from.qp_access_flags));
  CHECK(same(to.cap, from.cap));
  CHECK(same(to.ah_attr, from.ah_attr));
  CHECK(same(to.alt_ah_attr, from.alt_ah_attr));
  SAME(pkey_index);
  SAME(alt_pkey_index);
  SAME(en_sqd_async_notify);
  SAME(sq_draining);
  SAME(max_rd_atomic);
  SAME(max_dest_rd_atomic);
  SAME(min_rnr_timer);
  SAME(port_num);
  SAME(timeout);
  SAME(retry_cnt);
  SAME(rnr_retry);
  SAME(alt_port_num);
  SAME(alt_timeout);
  SAME(rate_limit);
}

TEST_CASE("a DC initiator's attributes [row:IBV_EXP_QP_ACCESS_FLAGS]") {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = 7;
  int mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_ACCESS_FLAGS;
  to_initiator(attr, mask);
  CHECK(mask == (IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN));
  CHECK(attr.sq_psn == 0);
  attr.sq_psn = 7;
  mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN;
  to_initiator(attr, mask);
  CHECK(attr.sq_psn == 7);
  attr.qp_state = IBV_QPS_RTR;
  mask = IBV_QP_STATE | IBV_QP_TIMEOUT;
  to_initiator(attr, mask);
  CHECK(mask == (IBV_QP_STATE | IBV_QP_TIMEOUT));
}

TEST_CASE("members of ibv_qp_init_attr") {
  auto from = distinct<ibv_qp_init_attr>();
  from.qp_type = IBV_QPT_UC;
  ibv_pd pd{};
  const ModernQpInit modern = to_modern(from, &pd);
  const ibv_qp_init_attr_ex &to = modern.attr;
  SAME(qp_context);
  SAME(send_cq);
  SAME(recv_cq);
  SAME(srq);
  CHECK(same(to.cap, from.cap));
  SAME(qp_type);
  SAME(sq_sig_all);
  CHECK(to.pd == &pd);
  CHECK(to.comp_mask == IBV_QP_INIT_ATTR_PD);
  CHECK_FALSE(modern.needs_dv);
}

// [row:IBV_EXP_QP_INIT_ATTR_ASSOCIATED_QPN][row:IBV_EXP_QP_INIT_ATTR_MAX_INL_KLMS]
TEST_CASE(
    "members of ibv_exp_qp_init_attr [row:IBV_EXP_QP_INIT_ATTR_PD][row:IBV_EXP_QP_INIT_ATTR_XRCD]"
    "[row:IBV_EXP_QP_INIT_ATTR_MAX_TSO_HEADER][row:IBV_EXP_QP_INIT_ATTR_RX_HASH]") {
  auto from = distinct<ibv_exp_qp_init_attr>();
  auto hash = distinct<ibv_exp_rx_hash_conf>(3);
  from.qp_type = IBV_QPT_RAW_PACKET;
  from.rx_hash_conf = &hash;
  from.exp_create_flags = 0;

  SECTION("that a mask names") {
    from.comp_mask = IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_XRCD |
                     IBV_EXP_QP_INIT_ATTR_MAX_TSO_HEADER | IBV_EXP_QP_INIT_ATTR_RX_HASH |
                     IBV_EXP_QP_INIT_ATTR_ASSOCIATED_QPN | IBV_EXP_QP_INIT_ATTR_MAX_INL_KLMS;
    const ModernQpInit modern = to_modern(from);
    const ibv_qp_init_attr_ex &to = modern.attr;
    SAME(qp_context);
    SAME(send_cq);
    SAME(recv_cq);
    SAME(srq);
    CHECK(same(to.cap, from.cap));
    SAME(qp_type);
    SAME(sq_sig_all);
    SAME(pd);
    SAME(xrcd);
    SAME(max_tso_header);
    CHECK(to.source_qpn == from.associated_qpn);
    CHECK(to.rx_hash_conf.rx_hash_function == hash.rx_hash_function);
    CHECK(to.rx_hash_conf.rx_hash_key_len == hash.rx_hash_key_len);
    CHECK(to.rx_hash_conf.rx_hash_key == hash.rx_hash_key);
    CHECK(to.rx_hash_conf.rx_hash_fields_mask == hash.rx_hash_fields_mask);
    CHECK(modern.max_umr_pieces == from.max_inl_send_klms);
    CHECK(to.comp_mask == (IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD |
                           IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_MAX_TSO_HEADER |
                           IBV_QP_INIT_ATTR_RX_HASH | IBV_QP_INIT_ATTR_IND_TABLE));
  }
  SECTION("and not without") {
    from.comp_mask = 0;
    from.exp_create_flags = ~0u;
    const ModernQpInit modern = to_modern(from);
    CHECK(modern.attr.comp_mask == 0);
    CHECK(modern.attr.pd == nullptr);
    CHECK(modern.attr.xrcd == nullptr);
    CHECK(modern.attr.create_flags == 0);
    CHECK(modern.attr.source_qpn == 0);
    CHECK(modern.attr.max_tso_header == 0);
    CHECK(modern.attr.rx_hash_conf.rx_hash_key == nullptr);
    CHECK(modern.dv.create_flags == 0);
    CHECK(modern.dv.comp_mask == 0);
    CHECK(modern.max_umr_pieces == 0);
    CHECK_FALSE(modern.needs_dv);
  }
}

// [row:IBV_EXP_QP_CREATE_PACKET_BASED_CREDIT_MODE][row:IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS]
TEST_CASE("flags of ibv_exp_qp_init_attr, one by one [row:IBV_EXP_QP_CREATE_TUNNEL_OFFLOADS]") {
  constexpr struct {
    std::uint32_t exp;
    std::uint32_t modern, dv;
  } flags[] = {
      {IBV_EXP_QP_CREATE_SCATTER_FCS, IBV_QP_CREATE_SCATTER_FCS, 0},
      {IBV_EXP_QP_CREATE_RX_END_PADDING, IBV_QP_CREATE_PCI_WRITE_END_PADDING, 0},
      {IBV_EXP_QP_CREATE_PACKET_BASED_CREDIT_MODE, 0, MLX5DV_QP_CREATE_PACKET_BASED_CREDIT_MODE},
      {IBV_EXP_QP_CREATE_TUNNEL_OFFLOADS, 0, MLX5DV_QP_CREATE_TUNNEL_OFFLOADS},
      {IBV_EXP_QP_CREATE_ATOMIC_BE_REPLY, 0, 0},
  };
  for (const auto &flag : flags) {
    INFO(flag.exp);
    ibv_exp_qp_init_attr from{};
    from.comp_mask = IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS;
    from.exp_create_flags = flag.exp;
    const ModernQpInit to = to_modern(from);
    CHECK(to.attr.create_flags == flag.modern);
    CHECK(to.attr.comp_mask == (flag.modern != 0 ? IBV_QP_INIT_ATTR_CREATE_FLAGS : 0));
    CHECK(to.dv.create_flags == flag.dv);
    CHECK(to.dv.comp_mask == (flag.dv != 0 ? MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS : 0));
    CHECK(to.needs_dv == (flag.dv != 0));
  }
}

TEST_CASE("a DC initiator receives nothing [row:IBV_EXP_QPT_DC_INI]") {
  auto from = distinct<ibv_exp_qp_init_attr>();
  from.qp_type = static_cast<ibv_qp_type>(IBV_EXP_QPT_DC_INI);
  from.comp_mask = 0;
  from.recv_cq = nullptr;
  const ModernQpInit to = to_modern(from);
  CHECK(to.attr.qp_type == IBV_QPT_DRIVER);
  CHECK(to.attr.srq == nullptr);
  CHECK(to.attr.recv_cq == from.send_cq);
  CHECK(to.attr.cap.max_recv_wr == 0);
  CHECK(to.attr.cap.max_recv_sge == 0);
  CHECK(to.attr.cap.max_send_wr == from.cap.max_send_wr);
  CHECK(to.attr.cap.max_send_sge == from.cap.max_send_sge);
  CHECK(to.attr.cap.max_inline_data == from.cap.max_inline_data);
  CHECK(to.dv.comp_mask == MLX5DV_QP_INIT_ATTR_MASK_DC);
  CHECK(to.dv.dc_init_attr.dc_type == MLX5DV_DCTYPE_DCI);
  CHECK(to.needs_dv);
}

// [rows:owner=query_port_mask]
TEST_CASE("members of ibv_port_attr [row:IBV_EXP_QUERY_PORT_SM_SL]") {
  auto from = distinct<ibv_port_attr>();
  from.state = IBV_PORT_ARMED;
  from.max_mtu = IBV_MTU_4096;
  from.active_mtu = IBV_MTU_512;
  ibv_exp_port_attr to;
  std::memset(static_cast<void *>(&to), 0xee, sizeof(to));
  to_legacy(from, ~0u, to);
  SAME(state);
  SAME(max_mtu);
  SAME(active_mtu);
  SAME(gid_tbl_len);
  SAME(port_cap_flags);
  SAME(max_msg_sz);
  SAME(bad_pkey_cntr);
  SAME(qkey_viol_cntr);
  SAME(pkey_tbl_len);
  SAME(lid);
  SAME(sm_lid);
  SAME(lmc);
  SAME(max_vl_num);
  SAME(sm_sl);
  SAME(subnet_timeout);
  SAME(init_type_reply);
  SAME(active_width);
  SAME(active_speed);
  SAME(phys_state);
  SAME(link_layer);
}

// [row:IBV_EXP_QUERY_PORT_ACTIVE_MTU][row:IBV_EXP_QUERY_PORT_ACTIVE_SPEED]
// [row:IBV_EXP_QUERY_PORT_ACTIVE_WIDTH][row:IBV_EXP_QUERY_PORT_BAD_PKEY_CNTR]
// [row:IBV_EXP_QUERY_PORT_CAP_FLAGS][row:IBV_EXP_QUERY_PORT_GID_TBL_LEN]
// [row:IBV_EXP_QUERY_PORT_INIT_TYPE_REPLY][row:IBV_EXP_QUERY_PORT_LID]
// [row:IBV_EXP_QUERY_PORT_LINK_LAYER][row:IBV_EXP_QUERY_PORT_LMC]
// [row:IBV_EXP_QUERY_PORT_MAX_MSG_SZ][row:IBV_EXP_QUERY_PORT_MAX_MTU]
// [row:IBV_EXP_QUERY_PORT_PHYS_STATE][row:IBV_EXP_QUERY_PORT_PKEY_TBL_LEN]
// [row:IBV_EXP_QUERY_PORT_QKEY_VIOL_CNTR][row:IBV_EXP_QUERY_PORT_SM_LID]
// [row:IBV_EXP_QUERY_PORT_STATE][row:IBV_EXP_QUERY_PORT_SUBNET_TIMEOUT]
TEST_CASE("bits of the port mask name their member [row:IBV_EXP_QUERY_PORT_MAX_VL_NUM]") {
  auto from = distinct<ibv_port_attr>();
  from.state = IBV_PORT_ARMED;
  from.max_mtu = IBV_MTU_4096;
  from.active_mtu = IBV_MTU_512;
  const auto alone = [&](std::uint32_t bit) {
    ibv_exp_port_attr to{};
    to_legacy(from, bit, to);
    return to;
  };
  CHECK(alone(IBV_EXP_QUERY_PORT_STATE).state == from.state);
  CHECK(alone(IBV_EXP_QUERY_PORT_MAX_MTU).max_mtu == from.max_mtu);
  CHECK(alone(IBV_EXP_QUERY_PORT_ACTIVE_MTU).active_mtu == from.active_mtu);
  CHECK(alone(IBV_EXP_QUERY_PORT_GID_TBL_LEN).gid_tbl_len == from.gid_tbl_len);
  CHECK(alone(IBV_EXP_QUERY_PORT_CAP_FLAGS).port_cap_flags == from.port_cap_flags);
  CHECK(alone(IBV_EXP_QUERY_PORT_MAX_MSG_SZ).max_msg_sz == from.max_msg_sz);
  CHECK(alone(IBV_EXP_QUERY_PORT_BAD_PKEY_CNTR).bad_pkey_cntr == from.bad_pkey_cntr);
  CHECK(alone(IBV_EXP_QUERY_PORT_QKEY_VIOL_CNTR).qkey_viol_cntr == from.qkey_viol_cntr);
  CHECK(alone(IBV_EXP_QUERY_PORT_PKEY_TBL_LEN).pkey_tbl_len == from.pkey_tbl_len);
  CHECK(alone(IBV_EXP_QUERY_PORT_LID).lid == from.lid);
  CHECK(alone(IBV_EXP_QUERY_PORT_SM_LID).sm_lid == from.sm_lid);
  CHECK(alone(IBV_EXP_QUERY_PORT_LMC).lmc == from.lmc);
  CHECK(alone(IBV_EXP_QUERY_PORT_MAX_VL_NUM).max_vl_num == from.max_vl_num);
  CHECK(alone(IBV_EXP_QUERY_PORT_SM_SL).sm_sl == from.sm_sl);
  CHECK(alone(IBV_EXP_QUERY_PORT_SUBNET_TIMEOUT).subnet_timeout == from.subnet_timeout);
  CHECK(alone(IBV_EXP_QUERY_PORT_INIT_TYPE_REPLY).init_type_reply == from.init_type_reply);
  CHECK(alone(IBV_EXP_QUERY_PORT_ACTIVE_WIDTH).active_width == from.active_width);
  CHECK(alone(IBV_EXP_QUERY_PORT_ACTIVE_SPEED).active_speed == from.active_speed);
  CHECK(alone(IBV_EXP_QUERY_PORT_PHYS_STATE).phys_state == from.phys_state);
  CHECK(alone(IBV_EXP_QUERY_PORT_LINK_LAYER).link_layer == from.link_layer);
}

TEST_CASE("members of ibv_device_attr [row:ibv_exp_query_device]") {
  DeviceFacts facts{};
  facts.attr.orig_attr = distinct<ibv_device_attr>();
  facts.attr.orig_attr.atomic_cap = IBV_ATOMIC_GLOB;
  const ibv_device_attr &from = facts.attr.orig_attr;
  const auto to = reported(facts, 0);
  CHECK(std::memcmp(to.fw_ver, from.fw_ver, sizeof(to.fw_ver)) == 0);
  SAME(node_guid);
  SAME(sys_image_guid);
  SAME(max_mr_size);
  SAME(page_size_cap);
  SAME(vendor_id);
  SAME(vendor_part_id);
  SAME(hw_ver);
  SAME(max_qp);
  SAME(max_qp_wr);
  CHECK(to.reserved == static_cast<int>(from.device_cap_flags));
  SAME(max_sge);
  SAME(max_sge_rd);
  SAME(max_cq);
  SAME(max_cqe);
  SAME(max_mr);
  SAME(max_pd);
  SAME(max_qp_rd_atom);
  SAME(max_ee_rd_atom);
  SAME(max_res_rd_atom);
  SAME(max_qp_init_rd_atom);
  SAME(max_ee_init_rd_atom);
  CHECK(to.exp_atomic_cap == IBV_EXP_ATOMIC_GLOB);
  SAME(max_ee);
  SAME(max_rdd);
  SAME(max_mw);
  SAME(max_raw_ipv6_qp);
  SAME(max_raw_ethy_qp);
  SAME(max_mcast_grp);
  SAME(max_mcast_qp_attach);
  SAME(max_total_mcast_qp_attach);
  SAME(max_ah);
  SAME(max_fmr);
  SAME(max_map_per_fmr);
  SAME(max_srq);
  SAME(max_srq_wr);
  SAME(max_srq_sge);
  SAME(max_pkeys);
  SAME(local_ca_ack_delay);
  SAME(phys_port_cnt);
}

TEST_CASE(
    "limits of DC are those of its two sides [row:dcatomic_query_req][row:dcatomic_query_res]") {
  DeviceFacts facts{};
  facts.dc = true;
  facts.attr.orig_attr.max_qp = 3;
  facts.attr.orig_attr.max_qp_init_rd_atom = 5;
  facts.attr.orig_attr.max_qp_rd_atom = 7;
  constexpr std::uint64_t mask =
      IBV_EXP_DEVICE_ATTR_MAX_DCT | IBV_EXP_DEVICE_DC_RD_REQ | IBV_EXP_DEVICE_DC_RD_RES;
  auto to = reported(facts, mask);
  CHECK(to.max_dct == 3);
  CHECK(to.max_dc_req_rd_atom == 5);
  CHECK(to.max_dc_res_rd_atom == 7);
  facts.max_dc_initiator_reads = 11;
  facts.max_dc_target_reads = 13;
  to = reported(facts, mask);
  CHECK(to.max_dc_req_rd_atom == 11);
  CHECK(to.max_dc_res_rd_atom == 13);
}

TEST_CASE("capabilities of a device, member by member [row:IBV_EXP_DEVICE_ATTR_MP_RQ]") {
  DeviceFacts facts{};
  facts.is_mlx5 = facts.scatter_to_cqe = facts.indirect_keys = true;
  facts.masked_atomic_sizes = 1u << 3 | 1u << 4;
  ibv_device_attr_ex &attr = facts.attr;
  mlx5dv_context &dv = facts.dv;

  attr.completion_timestamp_mask = 0x101;
  attr.hca_core_clock = 0x202;
  attr.orig_attr.max_mr_size = 0x303;
  attr.max_dm_size = 0x404;
  attr.max_wq_type_rq = 0x505;
  attr.odp_caps.general_caps = IBV_ODP_SUPPORT;
  attr.odp_caps.per_transport_caps = {1, 2, 4};
  attr.xrc_odp_caps = 8;
  dv.dc_odp_caps = 16;
  attr.tso_caps = {0x606, 1u << IBV_QPT_RAW_PACKET};
  attr.packet_pacing_caps.qp_rate_limit_min = 0x707;
  attr.packet_pacing_caps.qp_rate_limit_max = 0x808;
  attr.packet_pacing_caps.supported_qpts = 1u << IBV_QPT_UD;
  dv.sw_parsing_caps = {0x09, 1u << IBV_QPT_RC};
  dv.tunnel_offloads_caps = 0x7;
  attr.rss_caps.max_rwq_indirection_tables = 0x0a;
  attr.rss_caps.max_rwq_indirection_table_size = 0x0b;
  attr.rss_caps.rx_hash_function = 1;
  attr.rss_caps.rx_hash_fields_mask = 0x0c;
  attr.rss_caps.supported_qpts = 1u << IBV_QPT_RAW_PACKET;
  dv.striding_rq_caps = {1, 2, 3, 4, 1u << IBV_QPT_RAW_PACKET};
  dv.max_dynamic_bfregs = 0x0d;
  attr.raw_packet_caps = IBV_RAW_PACKET_CAP_CVLAN_STRIPPING;
  attr.device_cap_flags_ex = IBV_DEVICE_PCI_WRITE_END_PADDING;
  attr.pci_atomic_caps = {1, 2, 4};
  dv.comp_mask = MLX5DV_CONTEXT_MASK_DC_ODP_CAPS | MLX5DV_CONTEXT_MASK_SWP |
                 MLX5DV_CONTEXT_MASK_TUNNEL_OFFLOADS | MLX5DV_CONTEXT_MASK_STRIDING_RQ |
                 MLX5DV_CONTEXT_MASK_DYN_BFREGS;

  const auto to = reported(
      facts, IBV_EXP_DEVICE_ATTR_WITH_TIMESTAMP_MASK | IBV_EXP_DEVICE_ATTR_WITH_HCA_CORE_CLOCK |
                 IBV_EXP_DEVICE_ATTR_INLINE_RECV_SZ | IBV_EXP_DEVICE_ATTR_ODP |
                 IBV_EXP_DEVICE_ATTR_ODP_MAX_SIZE | IBV_EXP_DEVICE_ATTR_MAX_DM_SIZE |
                 IBV_EXP_DEVICE_ATTR_EXT_ATOMIC_ARGS | IBV_EXP_DEVICE_ATTR_MASKED_ATOMICS |
                 IBV_EXP_DEVICE_ATTR_UMR | IBV_EXP_DEVICE_ATTR_MAX_CTX_RES_DOMAIN |
                 IBV_EXP_DEVICE_ATTR_MAX_WQ_TYPE_RQ | IBV_EXP_DEVICE_ATTR_RSS_TBL_SZ |
                 IBV_EXP_DEVICE_ATTR_RX_HASH | IBV_EXP_DEVICE_ATTR_MP_RQ |
                 IBV_EXP_DEVICE_ATTR_VLAN_OFFLOADS | IBV_EXP_DEVICE_ATTR_TSO_CAPS |
                 IBV_EXP_DEVICE_ATTR_PACKET_PACING_CAPS | IBV_EXP_DEVICE_ATTR_SW_PARSING_CAPS |
                 IBV_EXP_DEVICE_ATTR_TUNNEL_OFFLOADS_CAPS | IBV_EXP_DEVICE_ATTR_RX_PAD_END_ALIGN);
  CHECK(to.timestamp_mask == 0x101);
  CHECK(to.hca_core_clock == 0x202);
  CHECK(to.inline_recv_sz == 64);
  CHECK(to.odp_mr_max_size == 0x303);
  CHECK(to.max_dm_size == 0x404);
  CHECK(to.max_wq_type_rq == 0x505);
  CHECK(to.odp_caps.general_odp_caps == IBV_EXP_ODP_SUPPORT);
  const auto &per = to.odp_caps.per_transport_caps;
  CHECK(per.rc_odp_caps == 1);
  CHECK(per.uc_odp_caps == 2);
  CHECK(per.ud_odp_caps == 4);
  CHECK(per.xrc_odp_caps == 8);
  CHECK(per.dc_odp_caps == 16);
  CHECK(per.raw_eth_odp_caps == 0);
  CHECK(to.ext_atom.log_atomic_arg_sizes == 1u << 3);
  CHECK(to.ext_atom.max_fa_bit_boundary == 64);
  CHECK(to.ext_atom.log_max_atomic_inline == 5);
  CHECK(to.masked_atomic.max_fa_bit_boundary == 64);
  CHECK(to.masked_atomic.log_max_atomic_inline == 5);
  CHECK(to.masked_atomic.masked_log_atomic_arg_sizes == (1u << 3 | 1u << 4));
  CHECK(to.masked_atomic.masked_log_atomic_arg_sizes_network_endianness == 1u << 4);
  CHECK(to.umr_caps.max_klm_list_size == 65531);
  CHECK(to.umr_caps.max_send_wqe_inline_klms == 51);
  CHECK(to.umr_caps.max_umr_recursion_depth == 4);
  CHECK(to.umr_caps.max_umr_stride_dimension == 1);
  CHECK(to.max_ctx_res_domain == 0x0d);
  CHECK(to.max_rss_tbl_sz == 0x0b);
  CHECK(to.rx_hash_caps.max_rwq_indirection_tables == 0x0a);
  CHECK(to.rx_hash_caps.max_rwq_indirection_table_size == 0x0b);
  CHECK(to.rx_hash_caps.supported_hash_functions == 1);
  CHECK(to.rx_hash_caps.supported_packet_fields == 0x0c);
  CHECK(to.rx_hash_caps.supported_qps == IBV_EXP_QPT_RAW_PACKET);
  CHECK(to.mp_rq_caps.supported_qps == IBV_EXP_MP_RQ_SUP_TYPE_WQ_RQ);
  CHECK(to.mp_rq_caps.allowed_shifts == IBV_EXP_MP_RQ_2BYTES_SHIFT);
  CHECK(to.mp_rq_caps.min_single_stride_log_num_of_bytes == 1);
  CHECK(to.mp_rq_caps.max_single_stride_log_num_of_bytes == 2);
  CHECK(to.mp_rq_caps.min_single_wqe_log_num_of_strides == 3);
  CHECK(to.mp_rq_caps.max_single_wqe_log_num_of_strides == 4);
  CHECK(to.wq_vlan_offloads_cap == IBV_EXP_RECEIVE_WQ_CVLAN_STRIP);
  CHECK(to.tso_caps.max_tso == 0x606);
  CHECK(to.tso_caps.supported_qpts == 1u << IBV_QPT_RAW_PACKET);
  CHECK(to.packet_pacing_caps.qp_rate_limit_min == 0x707);
  CHECK(to.packet_pacing_caps.qp_rate_limit_max == 0x808);
  CHECK(to.packet_pacing_caps.supported_qpts == 1u << IBV_QPT_UD);
  CHECK(to.packet_pacing_caps.cap_flags == 0);
  CHECK(to.sw_parsing_caps.sw_parsing_offloads == 0x09);
  CHECK(to.sw_parsing_caps.supported_qpts == 1u << IBV_QPT_RC);
  CHECK(to.tunnel_offloads_caps == 0x7);
  CHECK(to.rx_pad_end_addr_align == 64);

  // What a word of validity does not name is not there.
  dv.comp_mask = 0;
  ibv_exp_device_attr without{};
  without.comp_mask = IBV_EXP_DEVICE_ATTR_ODP | IBV_EXP_DEVICE_ATTR_SW_PARSING_CAPS |
                      IBV_EXP_DEVICE_ATTR_TUNNEL_OFFLOADS_CAPS | IBV_EXP_DEVICE_ATTR_MP_RQ |
                      IBV_EXP_DEVICE_ATTR_MAX_CTX_RES_DOMAIN;
  to_legacy(facts, every, without);
  // Some bits come back all the same.
  CHECK(without.comp_mask ==
        (IBV_EXP_DEVICE_ATTR_ODP | IBV_EXP_DEVICE_ATTR_MAX_CTX_RES_DOMAIN |
         IBV_EXP_DEVICE_ATTR_TUNNEL_OFFLOADS_CAPS | IBV_EXP_DEVICE_ATTR_MP_RQ));
  CHECK(without.odp_caps.per_transport_caps.dc_odp_caps == 0);
  CHECK(without.max_ctx_res_domain == 512);
  CHECK(without.tunnel_offloads_caps == 0);
  CHECK(without.mp_rq_caps.supported_qps == 0);

  // Multi-packet queues are for raw packets, and fields of a hash are those with names.
  dv.comp_mask = MLX5DV_CONTEXT_MASK_STRIDING_RQ;
  dv.striding_rq_caps.supported_qpts = 1u << IBV_QPT_UD;
  attr.rss_caps.rx_hash_fields_mask = ~std::uint64_t{0};
  // What a device does not say it does is not reported as done.
  attr.raw_packet_caps = 0;
  attr.device_cap_flags_ex = 0;
  ibv_exp_device_attr less{};
  less.comp_mask = IBV_EXP_DEVICE_ATTR_MP_RQ | IBV_EXP_DEVICE_ATTR_RX_HASH |
                   IBV_EXP_DEVICE_ATTR_VLAN_OFFLOADS | IBV_EXP_DEVICE_ATTR_RX_PAD_END_ALIGN;
  to_legacy(facts, every, less);
  CHECK(less.mp_rq_caps.supported_qps == 0);
  CHECK(less.rx_hash_caps.supported_packet_fields == (0xff | IBV_EXP_RX_HASH_INNER));
  CHECK(less.wq_vlan_offloads_cap == 0);
  CHECK(less.rx_pad_end_addr_align == 0);

  // Queues with time stamps are made by mlx5dv.
  facts.is_mlx5 = false;
  ibv_exp_device_attr elsewhere{};
  elsewhere.comp_mask = IBV_EXP_DEVICE_ATTR_WITH_TIMESTAMP_MASK;
  to_legacy(facts, every, elsewhere);
  CHECK(elsewhere.comp_mask == 0);
}

TEST_CASE("members of ibv_exp_tm_caps [row:IBV_EXP_DEVICE_ATTR_TM_CAPS]") {
  DeviceFacts facts{};
  facts.engine = true;
  ibv_tm_caps &from = facts.attr.tm_caps;
  from = {0x101, 0x202, IBV_TM_CAP_RC, 0x303, 0x404};
  const ibv_exp_tm_caps to = reported(facts, IBV_EXP_DEVICE_ATTR_TM_CAPS).tm_caps;
  SAME(max_rndv_hdr_size);
  SAME(max_num_tags);
  SAME(max_ops);
  SAME(max_sge);
  CHECK(to.capability_flags == IBV_EXP_TM_CAP_RC);
}

TEST_CASE("members of ibv_exp_dct_init_attr [row:ibv_exp_create_dct]") {
  auto from = distinct<ibv_exp_dct_init_attr>();
  from.mtu = IBV_MTU_2048;
  const ibv_qp_attr to = to_modern(from, true);
  CHECK(to.pkey_index == from.pkey_index);
  CHECK(to.port_num == from.port);
  CHECK(to.qp_access_flags == from.access_flags);
  CHECK(to.path_mtu == IBV_MTU_2048);
  SAME(min_rnr_timer);
  CHECK(to.ah_attr.port_num == from.port);
  CHECK(to.ah_attr.is_global == 1);
  CHECK(to.ah_attr.grh.traffic_class == from.tclass);
  CHECK(to.ah_attr.grh.flow_label == from.flow_label);
  CHECK(to.ah_attr.grh.hop_limit == from.hop_limit);
  CHECK(to.ah_attr.grh.sgid_index == from.gid_index);
  const ibv_qp_attr local = to_modern(from, false);
  CHECK(local.ah_attr.is_global == 0);
  CHECK(local.ah_attr.grh.sgid_index == 0);
}

TEST_CASE("members of ibv_exp_dct_attr [row:ibv_exp_query_dct]") {
  auto from = distinct<ibv_qp_attr>();
  from.qp_state = IBV_QPS_RTR;
  from.path_mtu = IBV_MTU_512;
  ibv_exp_dct_attr to{};
  to_legacy(from, to);
  CHECK(to.port == from.port_num);
  CHECK(to.access_flags == from.qp_access_flags);
  SAME(min_rnr_timer);
  CHECK(to.tclass == from.ah_attr.grh.traffic_class);
  CHECK(to.flow_label == from.ah_attr.grh.flow_label);
  CHECK(to.mtu == IBV_MTU_512);
  CHECK(to.pkey_index == static_cast<std::uint8_t>(from.pkey_index));
  CHECK(to.gid_index == from.ah_attr.grh.sgid_index);
  CHECK(to.hop_limit == from.ah_attr.grh.hop_limit);
  CHECK(to.state == IBV_EXP_DCT_STATE_ACTIVE);
  from.qp_state = IBV_QPS_ERR;
  to_legacy(from, to);
  CHECK(to.state == IBV_EXP_DCT_STATE_DRAINED);
}

TEST_CASE("members of the clock [row:IBV_EXP_VALUES_CLOCK_INFO]") {
  const auto from = distinct<mlx5dv_clock_info>();
  const ibv_exp_clock_info to = to_legacy(from);
  CHECK(to.cycles == from.last_cycles);
  SAME(nsec);
  SAME(mult);
  SAME(frac);
  SAME(shift);
  SAME(mask);
  CHECK(to.comp_mask == 0);
}

TEST_CASE("cycles become nanoseconds, with the fraction [row:IBV_EXP_VALUES_CLOCK_INFO]") {
  ibv_exp_clock_info clock{};
  clock.cycles = 100;
  clock.nsec = 5000;
  clock.mult = 3;
  clock.frac = 3;
  clock.shift = 2;
  clock.mask = 0xffff;
  CHECK(cycles_to_ns(clock, 100) == 5000);
  CHECK(cycles_to_ns(clock, 103) == 5003);  // (9 + 3) / 4
  CHECK(cycles_to_ns(clock, 97) == 4999);   // (9 - 3) / 4
  CHECK(cycles_to_ns(clock, 100 + 0x10000) == 5000);
}

TEST_CASE("members of a received message's completion [row:IBV_EXP_WC_WITH_IMM]") {
  auto from = distinct<ibv_wc>();
  from.status = IBV_WC_SUCCESS;
  from.opcode = IBV_WC_RECV;
  from.wc_flags = IBV_WC_WITH_IMM;
  ibv_qp qp{};
  ibv_srq srq{};
  const ibv_exp_wc to = to_legacy(from, {&qp, &srq, nullptr}, false);
  SAME(wr_id);
  SAME(status);
  CHECK(to.exp_opcode == IBV_EXP_WC_RECV);
  CHECK(to.vendor_err == 0);
  SAME(byte_len);
  SAME(imm_data);
  SAME(qp_num);
  SAME(src_qp);
  SAME(pkey_index);
  SAME(slid);
  SAME(sl);
  SAME(dlid_path_bits);
  CHECK(to.reserved == IBV_WC_WITH_IMM);
  CHECK(to.timestamp == 0);
  CHECK(to.qp == &qp);
  CHECK(to.srq == &srq);
  CHECK(to.dct == nullptr);

  ibv_exp_dct dct{};
  const ibv_exp_wc of_target = to_legacy(from, {nullptr, &srq, &dct}, false);
  CHECK(of_target.dct == &dct);
  CHECK(of_target.srq == &srq);
  CHECK((of_target.exp_wc_flags & (IBV_EXP_WC_QP | IBV_EXP_WC_DCT | IBV_EXP_WC_SRQ)) ==
        (IBV_EXP_WC_DCT | IBV_EXP_WC_SRQ));
}

TEST_CASE("members of ibv_exp_send_wr, by opcode [row:ibv_exp_post_send]") {
  auto from = distinct<ibv_exp_send_wr>();
  from.exp_send_flags = IBV_EXP_SEND_SIGNALED;
  const auto convert = [&](ibv_wr_opcode opcode) {
    ibv_send_wr to{};
    to_modern(from, opcode, to);
    CHECK(to.wr_id == from.wr_id);
    CHECK(to.sg_list == from.sg_list);
    // Of those without data nothing is read.
    const bool bare = opcode == IBV_WR_LOCAL_INV || opcode == IBV_WR_BIND_MW;
    CHECK(to.num_sge == (bare ? 0 : from.num_sge));
    CHECK(to.opcode == opcode);
    CHECK(to.send_flags == IBV_SEND_SIGNALED);
    CHECK(to.imm_data == from.ex.imm_data);
    return to;
  };
  for (const auto opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ}) {
    const auto to = convert(opcode);
    SAME(wr.rdma.remote_addr);
    SAME(wr.rdma.rkey);
  }
  for (const auto opcode : {IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    const auto to = convert(opcode);
    SAME(wr.atomic.remote_addr);
    SAME(wr.atomic.compare_add);
    SAME(wr.atomic.swap);
    SAME(wr.atomic.rkey);
  }
  for (const auto opcode : {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM}) {
    const auto to = convert(opcode);
    SAME(wr.ud.ah);
    SAME(wr.ud.remote_qpn);
    SAME(wr.ud.remote_qkey);
  }
  CHECK(convert(IBV_WR_SEND_WITH_INV).invalidate_rkey == from.ex.invalidate_rkey);
  CHECK(convert(IBV_WR_LOCAL_INV).invalidate_rkey == from.ex.invalidate_rkey);
  {
    const auto to = convert(IBV_WR_TSO);
    SAME(tso.hdr);
    SAME(tso.hdr_sz);
    SAME(tso.mss);
  }
  CHECK(convert(IBV_WR_SEND).qp_type.xrc.remote_srqn == from.qp_type.xrc.remote_srqn);
}

TEST_CASE("members of ibv_exp_wq_init_attr [row:ibv_exp_create_wq]") {
  auto from = distinct<ibv_exp_wq_init_attr>();
  from.comp_mask = IBV_EXP_CREATE_WQ_FLAGS | IBV_EXP_CREATE_WQ_VLAN_OFFLOADS;
  from.vlan_offloads = 0;
  from.flags = 0;
  auto to = to_modern(from);
  SAME(wq_context);
  CHECK(to.max_wr == from.max_recv_wr);
  CHECK(to.max_sge == from.max_recv_sge);
  SAME(pd);
  SAME(cq);
  CHECK(to.wq_type == IBV_WQT_RQ);
  CHECK(to.comp_mask == 0);

  // Read only with their bits.
  from.vlan_offloads = IBV_EXP_RECEIVE_WQ_CVLAN_STRIP;
  from.flags = IBV_EXP_CREATE_WQ_FLAG_SCATTER_FCS;
  CHECK(to_modern(from).create_flags == (IBV_WQ_FLAGS_CVLAN_STRIPPING | IBV_WQ_FLAGS_SCATTER_FCS));
  CHECK(to_modern(from).comp_mask == IBV_WQ_INIT_ATTR_FLAGS);
  from.comp_mask = IBV_EXP_CREATE_WQ_FLAGS;
  CHECK(to_modern(from).create_flags == IBV_WQ_FLAGS_SCATTER_FCS);
  from.comp_mask = IBV_EXP_CREATE_WQ_VLAN_OFFLOADS;
  CHECK(to_modern(from).create_flags == IBV_WQ_FLAGS_CVLAN_STRIPPING);

  CHECK(to_modern_strides(from).comp_mask == 0);
  from.comp_mask = IBV_EXP_CREATE_WQ_MP_RQ;
  from.mp_rq = {IBV_EXP_MP_RQ_NO_SHIFT, 11, 7};
  const mlx5dv_wq_init_attr strides = to_modern_strides(from);
  CHECK(strides.comp_mask == MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ);
  CHECK(strides.striding_rq_attrs.single_stride_log_num_of_bytes ==
        from.mp_rq.single_stride_log_num_of_bytes);
  CHECK(strides.striding_rq_attrs.single_wqe_log_num_of_strides ==
        from.mp_rq.single_wqe_log_num_of_strides);
  CHECK(from.mp_rq.single_stride_log_num_of_bytes != from.mp_rq.single_wqe_log_num_of_strides);
  CHECK(strides.striding_rq_attrs.two_byte_shift_en == 0);
}

TEST_CASE(
    "members of ibv_exp_cq_attr [row:cqmod_modify_cq_cq_count][row:cqmod_modify_cq_cq_period]") {
  const auto from = distinct<ibv_exp_cq_attr>();
  const ibv_modify_cq_attr to = to_modern(from);
  CHECK(to.attr_mask == IBV_CQ_ATTR_MODERATE);
  CHECK(to.moderate.cq_count == from.moderation.cq_count);
  CHECK(to.moderate.cq_period == from.moderation.cq_period);
}

TEST_CASE("members of ibv_exp_qp_attr that pace [row:IBV_EXP_QP_ATTR_BURST_INFO]") {
  const auto from = distinct<ibv_exp_qp_attr>();
  const ibv_qp_rate_limit_attr to = to_modern_pace(from);
  SAME(rate_limit);
  CHECK(to.max_burst_sz == from.burst_info.max_burst_sz);
  CHECK(to.typical_pkt_sz == from.burst_info.typical_pkt_sz);
  CHECK(to.comp_mask == 0);
}

TEST_CASE("members of ibv_exp_create_srq_attr [row:ibv_exp_create_srq]") {
  auto from = distinct<ibv_exp_create_srq_attr>();
  from.srq_type = IBV_EXP_SRQT_XRC;
  ibv_srq_init_attr_ex to = to_modern(from);
  CHECK(to.srq_context == from.base.srq_context);
  CHECK(same(to.attr, from.base.attr));
  CHECK(to.srq_type == IBV_SRQT_XRC);
  SAME(pd);
  SAME(cq);
  SAME(xrcd);
  CHECK(to.comp_mask == (IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ |
                         IBV_SRQ_INIT_ATTR_XRCD));
  from.srq_type = IBV_EXP_SRQT_BASIC;
  to = to_modern(from);
  CHECK(to.srq_type == IBV_SRQT_BASIC);
  CHECK(to.comp_mask == (IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD));
  CHECK(to.cq == nullptr);
  CHECK(to.xrcd == nullptr);
  from.srq_type = IBV_EXP_SRQT_TAG_MATCHING;
  to = to_modern(from);
  CHECK(to.srq_type == IBV_SRQT_TM);
  CHECK(to.comp_mask == (IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ |
                         IBV_SRQ_INIT_ATTR_TM));
  SAME(cq);
  SAME(tm_cap.max_num_tags);
  SAME(tm_cap.max_ops);
}

TEST_CASE("members of ibv_exp_ops_wr [row:ibv_exp_post_srq_ops]") {
  auto from = distinct<ibv_exp_ops_wr>();
  from.opcode = IBV_EXP_WR_TAG_DEL;
  const ibv_ops_wr to = to_modern(from);
  SAME(wr_id);
  CHECK(to.next == nullptr);
  CHECK(static_cast<int>(to.opcode) == static_cast<int>(from.opcode));
  SAME(flags);
  SAME(tm.unexpected_cnt);
  SAME(tm.handle);
  SAME(tm.add.recv_wr_id);
  SAME(tm.add.sg_list);
  SAME(tm.add.num_sge);
  SAME(tm.add.tag);
  SAME(tm.add.mask);
}
