#include "uverbs/qp_masks.h"

namespace softhca::uverbs {

namespace {

constexpr u32 all_types = 0xff;
constexpr u32 bit(QpType t) { return 1u << static_cast<u32>(t); }
constexpr u32 rc = bit(QpType::rc), uc = bit(QpType::uc), ud = bit(QpType::ud),
              ini = bit(QpType::xrc_ini), tgt = bit(QpType::xrc_tgt), dci = bit(QpType::dci),
              raw = bit(QpType::raw_packet);

struct Row {
  u32 types;
  QpState from, to;
  u32 required, optional;
};

using S = QpState;
constexpr u32 identity = mask_pkey | mask_port | mask_access;
constexpr u32 path = mask_av | mask_mtu | mask_dest_qpn | mask_rq_psn;
constexpr u32 respond = mask_dest_rd_atomic | mask_rnr_timer;
constexpr u32 retries = mask_timeout | mask_retry | mask_rnr_retry | mask_rd_atomic;
constexpr u32 to_rtr_extra = mask_alt_path | mask_access | mask_pkey;
constexpr u32 live = mask_cur_state | mask_alt_path | mask_access | mask_mig_state;
constexpr u32 sqd_to_sqd =
    mask_port | mask_access | mask_pkey | mask_av | mask_alt_path | mask_mig_state;

// core/verbs.c qp_state_table for all but DCI, mlx5/qp.c modify_dci_qp_is_ok
// for that. A transition without a row is refused.
constexpr Row rows[] = {
    {rc | uc | ini | tgt, S::reset, S::init, identity, 0},
    {ud, S::reset, S::init, mask_pkey | mask_port | mask_qkey, 0},
    {raw, S::reset, S::init, mask_port, 0},
    {dci, S::reset, S::init, mask_pkey | mask_port, 0},

    {rc | uc | ini | tgt, S::init, S::init, 0, identity},
    {ud, S::init, S::init, 0, mask_pkey | mask_port | mask_qkey},
    {raw, S::init, S::init, 0, 0},
    {dci, S::init, S::init, 0, mask_pkey | mask_port},

    {rc | tgt, S::init, S::rtr, path | respond, to_rtr_extra},
    {uc | ini, S::init, S::rtr, path, to_rtr_extra},
    {ud, S::init, S::rtr, 0, mask_pkey | mask_qkey},
    {raw, S::init, S::rtr, 0, 0},
    {dci, S::init, S::rtr, mask_mtu, mask_pkey | mask_av},

    {rc, S::rtr, S::rts, retries | mask_sq_psn, live | mask_rnr_timer},
    {ini, S::rtr, S::rts, retries | mask_sq_psn, live},
    {uc, S::rtr, S::rts, mask_sq_psn, live},
    {tgt, S::rtr, S::rts, mask_timeout | mask_sq_psn, live | mask_rnr_timer},
    {ud, S::rtr, S::rts, mask_sq_psn, mask_cur_state | mask_qkey},
    {raw, S::rtr, S::rts, 0, mask_rate_limit},
    {dci, S::rtr, S::rts, retries | mask_sq_psn, mask_rnr_timer},

    {rc | tgt, S::rts, S::rts, 0, live | mask_rnr_timer},
    {uc | ini, S::rts, S::rts, 0, live},
    {ud, S::rts, S::rts, 0, mask_cur_state | mask_qkey},
    {raw, S::rts, S::rts, 0, mask_rate_limit},
    {dci, S::rts, S::rts, 0, mask_rnr_timer},

    {rc | uc | ud | ini | tgt, S::rts, S::sqd, 0, mask_sqd_notify},
    {rc, S::sqd, S::sqd, 0, sqd_to_sqd | retries | respond},
    {uc, S::sqd, S::sqd, 0, sqd_to_sqd},
    {ud, S::sqd, S::sqd, 0, mask_pkey | mask_qkey},
    {ini, S::sqd, S::sqd, 0, sqd_to_sqd | retries},
    {tgt, S::sqd, S::sqd, 0, sqd_to_sqd | mask_timeout | respond},
    {rc | tgt, S::sqd, S::rts, 0, live | mask_rnr_timer},
    {uc | ini, S::sqd, S::rts, 0, live},
    {ud, S::sqd, S::rts, 0, mask_cur_state | mask_qkey},

    {rc | ini | tgt | raw, S::sqe, S::rts, 0, 0},
    {uc, S::sqe, S::rts, 0, mask_cur_state | mask_access},
    {ud, S::sqe, S::rts, 0, mask_cur_state | mask_qkey},
};

bool cur_state_meaningful(QpState s) {
  return s == S::rtr || s == S::rts || s == S::sqd || s == S::sqe;
}

}  // namespace

bool transition_allowed(QpType type, QpState from, QpState to, u32 mask) {
  if ((mask & mask_cur_state) != 0 && !cur_state_meaningful(from)) return false;
  // A DC initiator needs the state in the mask, also where it does not change.
  if (type == QpType::dci && (mask & mask_state) == 0) return false;
  // RESET from anywhere, ERR from anywhere but RESET, nothing else asked for.
  if (to == S::reset || (to == S::err && from != S::reset)) return (mask & ~mask_state) == 0;
  for (const Row &row : rows) {
    if ((row.types & bit(type) & all_types) == 0 || row.from != from || row.to != to) continue;
    return (mask & row.required) == row.required &&
           (mask & ~(row.required | row.optional | mask_state)) == 0;
  }
  return false;
}

}  // namespace softhca::uverbs
