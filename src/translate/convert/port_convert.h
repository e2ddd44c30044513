// Port attributes and GID types, modern to legacy. No calls.
#pragma once

#include <infiniband/verbs_exp.h>

#include <cstdint>

namespace ibvexp::translate {

// (exp <- modern) Members that mask1 names; the others are not written.
template <class Port>
[[gnu::always_inline]] inline void to_legacy(const Port &from, std::uint32_t wanted,
                                             ibv_exp_port_attr &to) {
#define IBVEXP_PORT_MEMBER(bit, name) \
  if ((wanted & IBV_EXP_QUERY_PORT_##bit) != 0) to.name = from.name;
  IBVEXP_PORT_MEMBER(STATE, state)
  IBVEXP_PORT_MEMBER(MAX_MTU, max_mtu)
  IBVEXP_PORT_MEMBER(ACTIVE_MTU, active_mtu)
  IBVEXP_PORT_MEMBER(GID_TBL_LEN, gid_tbl_len)
  IBVEXP_PORT_MEMBER(CAP_FLAGS, port_cap_flags)
  IBVEXP_PORT_MEMBER(MAX_MSG_SZ, max_msg_sz)
  IBVEXP_PORT_MEMBER(BAD_PKEY_CNTR, bad_pkey_cntr)
  IBVEXP_PORT_MEMBER(QKEY_VIOL_CNTR, qkey_viol_cntr)
  IBVEXP_PORT_MEMBER(PKEY_TBL_LEN, pkey_tbl_len)
  IBVEXP_PORT_MEMBER(LID, lid)
  IBVEXP_PORT_MEMBER(SM_LID, sm_lid)
  IBVEXP_PORT_MEMBER(LMC, lmc)
  IBVEXP_PORT_MEMBER(MAX_VL_NUM, max_vl_num)
  IBVEXP_PORT_MEMBER(SM_SL, sm_sl)
  IBVEXP_PORT_MEMBER(SUBNET_TIMEOUT, subnet_timeout)
  IBVEXP_PORT_MEMBER(INIT_TYPE_REPLY, init_type_reply)
  IBVEXP_PORT_MEMBER(ACTIVE_WIDTH, active_width)
  IBVEXP_PORT_MEMBER(ACTIVE_SPEED, active_speed)
  IBVEXP_PORT_MEMBER(PHYS_STATE, phys_state)
  IBVEXP_PORT_MEMBER(LINK_LAYER, link_layer)
#undef IBVEXP_PORT_MEMBER
}

// (exp <- modern) InfiniBand and RoCE v1 were one type. With 0 and 1 the other
// way round programs would choose the wrong RoCE entry.
inline ibv_exp_roce_gid_type to_legacy_gid_type(std::uint32_t modern) {
  return modern == IBV_GID_TYPE_ROCE_V2 ? IBV_EXP_ROCE_V2_GID_TYPE : IBV_EXP_IB_ROCE_V1_GID_TYPE;
}

}  // namespace ibvexp::translate
