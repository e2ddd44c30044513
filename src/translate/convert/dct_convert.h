// Attributes of DC targets between the ages. No calls.
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs_exp.h>

#include <cstdint>

namespace ibvexp::translate {

// Masks of the two steps. The kernel insists on exactly these.
inline constexpr int dct_to_init =
    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
inline constexpr int dct_to_rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER;
// What it answers.
inline constexpr int dct_query = dct_to_init | dct_to_rtr;

// (modern <- exp) The one set of attributes serves both steps. The address vector
// holds nothing but what the target answers with: global says whether the index
// names a GID.
inline ibv_qp_attr to_modern(const ibv_exp_dct_init_attr &from, bool global) {
  ibv_qp_attr to{};
  to.pkey_index = from.pkey_index;
  to.port_num = from.port;
  to.qp_access_flags = from.access_flags;
  to.path_mtu = from.mtu;
  to.min_rnr_timer = from.min_rnr_timer;
  to.ah_attr.port_num = from.port;
  to.ah_attr.is_global = global ? 1 : 0;
  to.ah_attr.grh.traffic_class = from.tclass;
  to.ah_attr.grh.flow_label = from.flow_label;
  to.ah_attr.grh.hop_limit = from.hop_limit;
  to.ah_attr.grh.sgid_index = global ? from.gid_index : 0;
  return to;
}

// (exp <- modern) What the device knows.
inline void to_legacy(const ibv_qp_attr &from, ibv_exp_dct_attr &to) {
  to.port = from.port_num;
  to.access_flags = from.qp_access_flags;
  to.min_rnr_timer = from.min_rnr_timer;
  to.tclass = from.ah_attr.grh.traffic_class;
  to.flow_label = from.ah_attr.grh.flow_label;
  to.mtu = from.path_mtu;
  to.pkey_index = static_cast<std::uint8_t>(from.pkey_index);
  to.gid_index = from.ah_attr.grh.sgid_index;
  to.hop_limit = from.ah_attr.grh.hop_limit;
  to.state = from.qp_state == IBV_QPS_RTR ? IBV_EXP_DCT_STATE_ACTIVE : IBV_EXP_DCT_STATE_DRAINED;
}

}  // namespace ibvexp::translate
