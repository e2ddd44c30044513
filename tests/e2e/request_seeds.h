// Requests that are nearly right, by the names of their members: where calls with any
// arguments begin.
#pragma once

#include <infiniband/verbs_exp.h>

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

// What requests start from, so that more of them is looked at than their first
// member. Members that lead to objects have good ones in any case.
struct Seed {
  const char *structure;
  std::vector<std::pair<const char *, std::uint64_t>> members;
};

inline const std::vector<Seed> seeds = {
    {"ibv_exp_qp_init_attr",
     {{"qp_type", IBV_QPT_RC},
      {"comp_mask", IBV_EXP_QP_INIT_ATTR_PD},
      {"cap.max_send_wr", 4},
      {"cap.max_recv_wr", 4},
      {"cap.max_send_sge", 1},
      {"cap.max_recv_sge", 1},
      {"srq", 0}}},
    {"ibv_exp_qp_init_attr",
     {{"qp_type", IBV_EXP_QPT_DC_INI},
      {"comp_mask", IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_CREATE_FLAGS |
                        IBV_EXP_QP_INIT_ATTR_MAX_INL_KLMS},
      {"exp_create_flags", IBV_EXP_QP_CREATE_UMR},
      {"max_inl_send_klms", 4},
      {"cap.max_send_wr", 4},
      {"cap.max_send_sge", 1},
      {"srq", 0}}},
    {"ibv_exp_qp_init_attr",
     {{"qp_type", IBV_QPT_RAW_PACKET},
      {"comp_mask", IBV_EXP_QP_INIT_ATTR_PD | IBV_EXP_QP_INIT_ATTR_RX_HASH},
      {"send_cq", 0},
      {"recv_cq", 0},
      {"srq", 0}}},
    {"ibv_exp_rx_hash_conf",
     {{"rx_hash_function", IBV_EXP_RX_HASH_FUNC_TOEPLITZ},
      {"rx_hash_key_len", 40},
      {"rx_hash_fields_mask", IBV_EXP_RX_HASH_SRC_IPV4}}},
    {"ibv_exp_dct_init_attr", {{"port", 1}, {"mtu", 3}, {"gid_index", 1}, {"hop_limit", 1}}},
    {"ibv_exp_wq_init_attr", {{"max_recv_wr", 4}, {"max_recv_sge", 1}}},
    {"ibv_exp_create_srq_attr", {{"base.attr.max_wr", 4}, {"base.attr.max_sge", 1}}},
    {"ibv_exp_create_srq_attr",
     {{"base.attr.max_wr", 4},
      {"base.attr.max_sge", 1},
      {"srq_type", IBV_EXP_SRQT_XRC},
      {"comp_mask", IBV_EXP_CREATE_SRQ_CQ | IBV_EXP_CREATE_SRQ_XRCD}}},
    {"ibv_srq_init_attr", {{"attr.max_wr", 4}, {"attr.max_sge", 1}}},
    {"ibv_exp_reg_mr_in", {{"length", 64}}},
    {"ibv_exp_reg_mr_in", {{"length", 64}, {"addr", 0}, {"comp_mask", IBV_EXP_REG_MR_DM}}},
    {"ibv_exp_create_mr_in",
     {{"attr.max_klm_list_size", 4}, {"attr.create_flags", IBV_EXP_MR_INDIRECT_KLMS}}},
    {"ibv_exp_alloc_dm_attr", {{"length", 64}}},
    {"ibv_exp_mkey_list_container_attr", {{"max_klm_list_size", 4}}},
    {"ibv_exp_memcpy_dm_attr", {{"length", 64}, {"memcpy_dir", IBV_EXP_DM_CPY_TO_HOST}}},
    {"ibv_exp_prefetch_attr", {{"length", 64}}},
    {"ibv_exp_flow_attr", {{"type", IBV_EXP_FLOW_ATTR_NORMAL}, {"port", 1}, {"num_of_specs", 1}}},
    {"ibv_exp_query_intf_params", {{"intf", IBV_EXP_INTF_QP_BURST}}},
    {"ibv_exp_query_intf_params", {{"intf", IBV_EXP_INTF_CQ}}},
    {"ibv_exp_query_intf_params", {{"intf", IBV_EXP_INTF_WQ}}},
    {"ibv_exp_mw_bind", {{"bind_info.length", 64}}},
    {"ibv_exp_cq_attr", {{"comp_mask", IBV_EXP_CQ_ATTR_MODERATION}}},
    {"ibv_sge", {{"length", 16}}},
};

inline constexpr std::array<int, 14> opcodes = {
    IBV_EXP_WR_RDMA_WRITE,    IBV_EXP_WR_RDMA_WRITE_WITH_IMM,
    IBV_EXP_WR_SEND,          IBV_EXP_WR_RDMA_READ,
    IBV_EXP_WR_SEND_WITH_INV, IBV_EXP_WR_ATOMIC_FETCH_AND_ADD,
    IBV_EXP_WR_LOCAL_INV,     IBV_EXP_WR_BIND_MW,
    IBV_EXP_WR_TSO,           IBV_EXP_WR_NOP,
    IBV_EXP_WR_UMR_FILL,      IBV_EXP_WR_UMR_INVALIDATE,
    IBV_EXP_WR_SEND_ENABLE,   IBV_EXP_WR_EXT_MASKED_ATOMIC_CMP_AND_SWP};
