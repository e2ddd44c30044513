// What an object is created with, as rdma-core gets it: a copy of the caller's structure that names
// the objects behind. Not in place, since threads may share attributes.
#pragma once

#include <cstddef>
#include <cstring>

#include "translate/queue/front.h"

namespace ibvexp::queue {

// How much of the structure there is: programs of older releases have shorter ones, and comp_mask
// says which members count.
inline std::size_t bytes_of(const ibv_qp_init_attr_ex &attr) noexcept {
  const auto has = [&](std::uint32_t bits) { return (attr.comp_mask & bits) != 0; };
  if (has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)) return sizeof(attr);
  if (has(IBV_QP_INIT_ATTR_CREATE_FLAGS) && (attr.create_flags & IBV_QP_CREATE_SOURCE_QPN) != 0)
    return offsetof(ibv_qp_init_attr_ex, send_ops_flags);
  if (has(IBV_QP_INIT_ATTR_RX_HASH)) return offsetof(ibv_qp_init_attr_ex, source_qpn);
  if (has(IBV_QP_INIT_ATTR_IND_TABLE)) return offsetof(ibv_qp_init_attr_ex, rx_hash_conf);
  if (has(IBV_QP_INIT_ATTR_MAX_TSO_HEADER)) return offsetof(ibv_qp_init_attr_ex, rwq_ind_tbl);
  if (has(IBV_QP_INIT_ATTR_CREATE_FLAGS)) return offsetof(ibv_qp_init_attr_ex, max_tso_header);
  if (has(IBV_QP_INIT_ATTR_XRCD)) return offsetof(ibv_qp_init_attr_ex, create_flags);
  if (has(IBV_QP_INIT_ATTR_PD)) return offsetof(ibv_qp_init_attr_ex, xrcd);
  return offsetof(ibv_qp_init_attr_ex, pd);
}
inline std::size_t bytes_of(const ibv_srq_init_attr_ex &attr) noexcept {
  const auto has = [&](std::uint32_t bits) { return (attr.comp_mask & bits) != 0; };
  if (has(IBV_SRQ_INIT_ATTR_TM)) return sizeof(attr);
  if (has(IBV_SRQ_INIT_ATTR_CQ)) return offsetof(ibv_srq_init_attr_ex, tm_cap);
  if (has(IBV_SRQ_INIT_ATTR_XRCD)) return offsetof(ibv_srq_init_attr_ex, cq);
  if (has(IBV_SRQ_INIT_ATTR_PD)) return offsetof(ibv_srq_init_attr_ex, xrcd);
  return offsetof(ibv_srq_init_attr_ex, pd);
}
inline std::size_t bytes_of(const ibv_wq_init_attr &attr) noexcept {
  return (attr.comp_mask & IBV_WQ_INIT_ATTR_FLAGS) != 0 ? sizeof(attr)
                                                        : offsetof(ibv_wq_init_attr, create_flags);
}

inline void look_behind(ibv_qp_init_attr_ex &attr) noexcept {
  attr.send_cq = behind(attr.send_cq);
  attr.recv_cq = behind(attr.recv_cq);
  attr.srq = behind(attr.srq);
}
inline void look_behind(ibv_srq_init_attr_ex &attr) noexcept { attr.cq = behind(attr.cq); }
inline void look_behind(ibv_wq_init_attr &attr) noexcept { attr.cq = behind(attr.cq); }

template <class Attr>
Attr attributes_behind(const Attr &of) noexcept {
  Attr copy{};
  std::memcpy(&copy, &of, bytes_of(of));
  look_behind(copy);
  return copy;
}

}  // namespace ibvexp::queue
