// Which attributes a transition of a QP needs and takes.
#pragma once

#include "model/qp.h"

namespace softhca::uverbs {

// enum ib_qp_attr_mask
enum QpMask : u32 {
  mask_state = 1 << 0,
  mask_cur_state = 1 << 1,
  mask_sqd_notify = 1 << 2,
  mask_access = 1 << 3,
  mask_pkey = 1 << 4,
  mask_port = 1 << 5,
  mask_qkey = 1 << 6,
  mask_av = 1 << 7,
  mask_mtu = 1 << 8,
  mask_timeout = 1 << 9,
  mask_retry = 1 << 10,
  mask_rnr_retry = 1 << 11,
  mask_rq_psn = 1 << 12,
  mask_rd_atomic = 1 << 13,
  mask_alt_path = 1 << 14,
  mask_rnr_timer = 1 << 15,
  mask_sq_psn = 1 << 16,
  mask_dest_rd_atomic = 1 << 17,
  mask_mig_state = 1 << 18,
  mask_cap = 1 << 19,
  mask_dest_qpn = 1 << 20,
  mask_rate_limit = 1 << 25,
};
constexpr u32 mask_standard = (1u << 21) - 1;

// Whether a QP of `type` may go from `from` to `to` with these attributes.
// DCTs have rules of their own, see qp_modify.cpp.
bool transition_allowed(QpType type, QpState from, QpState to, u32 mask);

}  // namespace softhca::uverbs
