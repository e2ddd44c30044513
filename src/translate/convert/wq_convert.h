// Work queue attributes, legacy to modern. No calls.
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs_exp.h>

#include <cstdint>

namespace ibvexp::translate {

// (modern <- exp) The flags of the two ages are numbered apart, and stripping is
// a flag today, an offload then.
constexpr std::uint32_t to_modern_wq_flags(std::uint64_t exp_flags, std::uint32_t vlan_offloads) {
  std::uint32_t flags = 0;
  if ((exp_flags & IBV_EXP_CREATE_WQ_FLAG_RX_END_PADDING) != 0)
    flags |= IBV_WQ_FLAGS_PCI_WRITE_END_PADDING;
  if ((exp_flags & IBV_EXP_CREATE_WQ_FLAG_SCATTER_FCS) != 0) flags |= IBV_WQ_FLAGS_SCATTER_FCS;
  if ((exp_flags & IBV_EXP_CREATE_WQ_FLAG_DELAY_DROP) != 0) flags |= IBV_WQ_FLAGS_DELAY_DROP;
  if ((vlan_offloads & IBV_EXP_RECEIVE_WQ_CVLAN_STRIP) != 0) flags |= IBV_WQ_FLAGS_CVLAN_STRIPPING;
  return flags;
}

// (modern <- exp) Members count where comp_mask says so.
constexpr ibv_wq_init_attr to_modern(const ibv_exp_wq_init_attr &from) {
  const auto has = [&](std::uint32_t bit) { return (from.comp_mask & bit) != 0; };
  ibv_wq_init_attr to{};
  to.wq_context = from.wq_context;
  to.wq_type = IBV_WQT_RQ;
  to.max_wr = from.max_recv_wr;
  to.max_sge = from.max_recv_sge;
  to.pd = from.pd;
  to.cq = from.cq;
  to.create_flags =
      to_modern_wq_flags(has(IBV_EXP_CREATE_WQ_FLAGS) ? from.flags : 0,
                         has(IBV_EXP_CREATE_WQ_VLAN_OFFLOADS) ? from.vlan_offloads : 0);
  if (to.create_flags != 0) to.comp_mask |= IBV_WQ_INIT_ATTR_FLAGS;
  return to;
}

// (modern <- exp) comp_mask stays 0 without multi-packet entries.
constexpr mlx5dv_wq_init_attr to_modern_strides(const ibv_exp_wq_init_attr &from) {
  mlx5dv_wq_init_attr to{};
  if ((from.comp_mask & IBV_EXP_CREATE_WQ_MP_RQ) == 0) return to;
  to.comp_mask = MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ;
  to.striding_rq_attrs.single_stride_log_num_of_bytes = from.mp_rq.single_stride_log_num_of_bytes;
  to.striding_rq_attrs.single_wqe_log_num_of_strides = from.mp_rq.single_wqe_log_num_of_strides;
  to.striding_rq_attrs.two_byte_shift_en = from.mp_rq.use_shift == IBV_EXP_MP_RQ_2BYTES_SHIFT;
  return to;
}

// The states have the same numbers.
static_assert(int{IBV_EXP_WQS_RESET} == IBV_WQS_RESET && int{IBV_EXP_WQS_RDY} == IBV_WQS_RDY &&
              int{IBV_EXP_WQS_ERR} == IBV_WQS_ERR && int{IBV_EXP_WQS_UNKNOWN} == IBV_WQS_UNKNOWN);

// (modern <- exp)
constexpr ibv_wq_attr to_modern(const ibv_exp_wq_attr &from) {
  ibv_wq_attr to{};
  if ((from.attr_mask & IBV_EXP_WQ_ATTR_STATE) != 0) {
    to.attr_mask |= IBV_WQ_ATTR_STATE;
    to.wq_state = static_cast<ibv_wq_state>(from.wq_state);
  }
  if ((from.attr_mask & IBV_EXP_WQ_ATTR_CURR_STATE) != 0) {
    to.attr_mask |= IBV_WQ_ATTR_CURR_STATE;
    to.curr_wq_state = static_cast<ibv_wq_state>(from.curr_wq_state);
  }
  if ((from.attr_mask & IBV_EXP_WQ_ATTR_VLAN_OFFLOADS) != 0) {
    to.attr_mask |= IBV_WQ_ATTR_FLAGS;
    to.flags_mask = IBV_WQ_FLAGS_CVLAN_STRIPPING;
    to.flags = to_modern_wq_flags(0, from.vlan_offloads);
  }
  return to;
}

}  // namespace ibvexp::translate
