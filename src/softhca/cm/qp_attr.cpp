// INIT_QP_ATTR: what modify_qp needs to bring a QP through its states
// (rdma_init_qp_attr in cma.c, cm_init_qp_*_attr in cm.c).
#include <rdma/ib_user_verbs.h>

#include <cerrno>

#include "cm/cm_state.h"
#include "model/mkey.h"
#include "model/qp.h"
#include "uverbs/qp_masks.h"

namespace softhca::cm {

namespace {

using namespace uverbs;  // the names of the mask bits

bool is(const Id &id, u8 type) { return id.qp_type == type; }

// A QP whose connection has not begun, or that will have none.
int before_connection(Id &id, ib_uverbs_qp_attr &a) {
  a.qp_attr_mask = mask_state | mask_pkey | mask_port;
  if (!id.ud()) {
    a.qp_attr_mask |= mask_access;
    return 0;
  }
  if (const int error = set_qkey(id, 0); error != 0) return error;
  a.qkey = id.qkey;
  a.qp_attr_mask |= mask_qkey;
  return 0;
}

int to_init(const Id &id, ib_uverbs_qp_attr &a) {
  a.qp_attr_mask = mask_state | mask_access | mask_pkey | mask_port;
  a.qp_access_flags = access_remote_write;
  if (id.link.responder_resources != 0)
    a.qp_access_flags |= access_remote_read | access_remote_atomic;
  return 0;
}

int to_rtr(const Id &id, ib_uverbs_qp_attr &a) {
  if (id.link.state == LinkState::req_sent) return EINVAL;
  a.qp_attr_mask = mask_state | mask_av | mask_mtu | mask_dest_qpn | mask_rq_psn;
  a.ah_attr = address_handle(*id.port, id.path);
  a.path_mtu = id.path.mtu;
  a.dest_qp_num = id.link.remote_qpn;
  if (is(id, qp_rc) || is(id, qp_xrc_tgt)) {
    a.qp_attr_mask |= mask_dest_rd_atomic | mask_rnr_timer;
    a.max_dest_rd_atomic = id.link.responder_resources;
  }
  return 0;
}

int to_rts(const Id &id, ib_uverbs_qp_attr &a) {
  if (id.link.state == LinkState::req_sent) return EINVAL;
  a.qp_attr_mask = mask_state | mask_sq_psn;
  a.sq_psn = id.link.send_psn;
  if (is(id, qp_rc) || is(id, qp_xrc_ini)) {
    a.qp_attr_mask |= mask_retry | mask_rnr_retry | mask_rd_atomic;
    a.retry_cnt = id.link.retry_count;
    a.rnr_retry = id.link.rnr_retry_count;
    a.max_rd_atomic = id.link.initiator_depth;
  }
  if (is(id, qp_rc) || is(id, qp_xrc_ini) || is(id, qp_xrc_tgt)) {
    a.qp_attr_mask |= mask_timeout;
    a.timeout = id.timeout_set ? id.timeout : id.link.ack_timeout;
  }
  return 0;
}

bool connecting(LinkState s) {
  switch (s) {
    case LinkState::req_sent:
    case LinkState::req_received:
    case LinkState::rep_sent:
    case LinkState::rep_received:
    case LinkState::established: return true;
    default: return false;
  }
}

}  // namespace

int init_qp_attr(Id &id, u32 qp_state, ib_uverbs_qp_attr &a) {
  const auto to = static_cast<QpState>(qp_state);
  if (qp_state > static_cast<u32>(QpState::err)) return EINVAL;
  a = {};
  int error = EINVAL;
  if (!id.link.exists || id.ud()) error = before_connection(id, a);
  else if (!connecting(id.link.state)) return EINVAL;
  else if (to == QpState::init) error = to_init(id, a);
  else if (to == QpState::rtr) error = to_rtr(id, a);
  else if (to == QpState::rts) error = to_rts(id, a);
  if (error != 0) return error;
  a.qp_state = qp_state;
  a.port_num = id.port->port;
  // Each side chose the PSN that it expects.
  if (to == QpState::rtr) a.rq_psn = id.starting_psn;
  return 0;
}

}  // namespace softhca::cm
