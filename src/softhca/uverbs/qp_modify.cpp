// Moving QPs from state to state: core/uverbs_cmd.c modify_qp, core/verbs.c,
// then mlx5_ib_modify_qp and mlx5_ib_modify_dct, checks in their order.
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include <algorithm>

#include "config/identity.h"
#include "model/path_migration.h"
#include "uverbs/address.h"
#include "uverbs/dispatch.h"
#include "uverbs/pacing.h"
#include "uverbs/privilege.h"
#include "uverbs/qp_masks.h"

namespace softhca::uverbs {

namespace {

constexpr u8 highest_state = static_cast<u8>(QpState::err);
constexpr u8 first_mtu = 1, last_mtu = 5;  // 256 .. 4096
constexpr u32 privileged_qkey = 1u << 31;
constexpr u32 remote_access = access_remote_write | access_remote_read | access_remote_atomic;

// A request with its bits; both evolve while it is checked.
struct Change {
  ib_uverbs_modify_qp in{};
  u32 mask = 0;
  u32 rate_limit = 0;
  mlx5_ib_burst_info burst{};
  AddressVector av, alt_av;
  bool has(u32 bits) const { return (mask & bits) != 0; }
};

void read_route(const ib_uverbs_qp_dest &from, AddressVector &to) {
  read_address(from, to);
  std::copy(std::begin(from.dgid), std::end(from.dgid), to.dgid);
  to.flow_label = from.flow_label & 0xfffff;
  to.sgid_index = from.sgid_index;
  to.hop_limit = from.hop_limit;
  to.traffic_class = from.traffic_class;
}

// Part 1: what the uverbs layer checks for every driver.
int check_generic(const File &file, const Qp &qp, Change &c) {
  const ib_uverbs_modify_qp &in = c.in;
  if (c.has(mask_port) && !file.valid_port(in.port_num)) return EINVAL;
  if (c.has(mask_av)) {
    if (!file.valid_port(in.dest.port_num)) return EINVAL;
    if (c.has(mask_state) && in.qp_state == static_cast<u8>(QpState::rtr)) {
      // The port was chosen on the way to INIT.
      if (in.dest.port_num != qp.attr.port) return EINVAL;
    } else {
      if (!c.has(mask_port)) {
        c.mask |= mask_port;
        c.in.port_num = in.dest.port_num;
      }
      if (c.in.port_num != in.dest.port_num) return EINVAL;
    }
  }
  if (c.has(mask_alt_path) &&
      (!file.valid_port(in.alt_port_num) || !file.valid_port(in.alt_dest.port_num) ||
       in.alt_port_num != in.alt_dest.port_num))
    return EINVAL;
  if ((c.has(mask_cur_state) && in.cur_qp_state > highest_state) ||
      (c.has(mask_state) && in.qp_state > highest_state))
    return EINVAL;
  if (c.has(mask_qkey) && (in.qkey & privileged_qkey) != 0 && !has_capability(CAP_NET_RAW))
    return EPERM;

  // Bits that mean nothing for half of an XRC connection are dropped.
  if (qp.type == QpType::xrc_ini) c.mask &= ~u32{mask_dest_rd_atomic | mask_rnr_timer};
  if (qp.type == QpType::xrc_tgt) c.mask &= ~u32{mask_rd_atomic | mask_retry | mask_rnr_retry};

  read_route(in.dest, c.av);
  read_route(in.alt_dest, c.alt_av);
  if (c.has(mask_av)) {
    if (const int error = check_address(file, c.av); error != 0) return error;
    if (has_route(qp.type) && !can_resolve(file, c.av)) return EINVAL;
  }
  if (c.has(mask_alt_path)) {
    // Path migration is InfiniBand only.
    if (file.device().ethernet(in.alt_port_num) ||
        (c.has(mask_av) && file.device().ethernet(c.av.port)))
      return EINVAL;
    if (const int error = check_address(file, c.alt_av); error != 0) return error;
  }
  c.in.rq_psn &= 0xffffff;
  c.in.sq_psn &= 0xffffff;
  return 0;
}

// Part 2: driver data. Bursts belong to a rate limit.
int check_driver_data(const Attrs &attrs, Change &c) {
  if (attrs.length(UVERBS_ATTR_UHW_IN) == 0) return 0;
  mlx5_ib_modify_qp d{};
  if (const int error =
          driver_request(attrs, d, SOFTHCA_END_OF(mlx5_ib_modify_qp, ece_options), EOPNOTSUPP);
      error != 0)
    return error;
  if (d.comp_mask != 0 || d.burst_info.reserved != 0) return EOPNOTSUPP;
  c.burst = d.burst_info;
  const bool burst = c.burst.max_burst_sz != 0 || c.burst.typical_pkt_sz != 0;
  return burst && c.has(mask_rate_limit) && c.rate_limit == 0 ? EINVAL : 0;
}

int check_values(const File &file, const Qp &qp, const Change &c) {
  const Capabilities &caps = file.caps();
  const u8 port = c.has(mask_port) ? c.in.port_num : qp.attr.port;
  if (c.has(mask_pkey)) {
    const LinkLayer link =
        file.valid_port(port) ? file.device().port(port).link : LinkLayer::infiniband;
    if (c.in.pkey_index >= pkey_table_size(link)) return EINVAL;
  }
  if (c.has(mask_rd_atomic) && c.in.max_rd_atomic > caps.max_rd_atomic) return EINVAL;
  if (c.has(mask_dest_rd_atomic) && c.in.max_dest_rd_atomic > caps.max_rd_atomic) return EINVAL;
  if (c.has(mask_mtu) && qp.type != QpType::ud &&
      (c.in.path_mtu < first_mtu || c.in.path_mtu > last_mtu))
    return EINVAL;
  if (c.has(mask_access) && (c.in.qp_access_flags & access_remote_atomic) != 0 && !caps.atomics)
    return EOPNOTSUPP;
  if (c.has(mask_rate_limit) && !caps.packet_pacing) return EOPNOTSUPP;
  if (c.has(mask_alt_path) &&
      (!caps.path_migration || c.in.alt_pkey_index >= pkey_table_size(LinkLayer::infiniband)))
    return EINVAL;
  if (c.has(mask_mig_state)) {
    // Software asks for REARM; only the device enters ARMED.
    const bool loaded = c.has(mask_alt_path) || qp.attr.alt_port != 0;
    const auto to = static_cast<PathState>(c.in.path_mig_state);
    if (to != PathState::migrated && (to != PathState::rearm || !loaded)) return EINVAL;
  }
  return 0;
}

// Takes an entry of the pacing table for the new rate before the old one goes.
int change_rate(QpObject &object, const Change &c) {
  u16 index = 0;
  const Rate rate{c.rate_limit, c.burst.max_burst_sz, c.burst.typical_pkt_sz};
  if (c.rate_limit != 0)
    if (const int error = pacing_acquire(object.file.device_number, rate, false, index); error != 0)
      return error;
  pacing_release(object.file.device_number, object.pacing_index);
  object.pacing_index = index;
  object.qp->attr.rate_limit = c.rate_limit;
  object.qp->eth->max_burst_bytes = c.burst.max_burst_sz;
  return 0;
}

u8 stored_depth(u8 n) { return n == 0 ? 0 : static_cast<u8>(round_up_pow2(n)); }

// Part 3: the new values.
void store(QpObject &object, const Change &c) {
  Qp &qp = *object.qp;
  QpAttributes &a = qp.attr;
  const ib_uverbs_modify_qp &in = c.in;
  if (c.has(mask_pkey)) a.pkey_index = in.pkey_index;
  if (c.has(mask_port)) a.port = in.port_num;
  if (c.has(mask_qkey)) a.qkey = in.qkey;
  if (c.has(mask_av)) a.av = c.av;
  // UD messages are one packet of up to 4 KiB whatever the path says.
  if (c.has(mask_mtu)) a.path_mtu = in.path_mtu;
  if (qp.type == QpType::ud) a.path_mtu = last_mtu;
  if (c.has(mask_dest_qpn)) a.dest_qpn = in.dest_qp_num & 0xffffff;
  if (c.has(mask_rq_psn)) a.rq_psn = in.rq_psn;
  if (c.has(mask_sq_psn)) a.sq_psn = in.sq_psn;
  if (c.has(mask_timeout)) a.timeout = in.timeout & 0x1f;
  if (c.has(mask_retry)) a.retry_count = in.retry_cnt & 7;
  if (c.has(mask_rnr_retry)) a.rnr_retry = in.rnr_retry & 7;
  if (c.has(mask_rnr_timer)) a.min_rnr_timer = in.min_rnr_timer & 0x1f;
  if (c.has(mask_rd_atomic)) a.max_rd_atomic = stored_depth(in.max_rd_atomic);
  if (c.has(mask_dest_rd_atomic)) a.max_dest_rd_atomic = stored_depth(in.max_dest_rd_atomic);
  if (c.has(mask_alt_path)) {
    a.alt_av = c.alt_av;
    a.alt_port = in.alt_port_num;
    a.alt_timeout = in.alt_timeout & 0x1f;
    a.alt_pkey_index = in.alt_pkey_index;
  }
  if (c.has(mask_mig_state)) set_migration(qp, static_cast<PathState>(in.path_mig_state));
  if (c.has(mask_access)) object.requested_access() = in.qp_access_flags & remote_access;
  // A responder without resources for READ and atomics answers WRITE only
  // (set_qpc_atomic_flags).
  a.access = object.requested_access();
  if (qp.type != QpType::dct && a.max_dest_rd_atomic == 0) a.access &= access_remote_write;
}

void enter(QpObject &object, QpState to) {
  Qp &qp = *object.qp;
  if (to == QpState::reset) {
    qp.attr = {};
    object.requested_access() = 0;
  }
  if (to == QpState::err) qp.attr.rate_limit = 0;
  if (qp.attr.rate_limit == 0) {
    pacing_release(object.file.device_number, object.pacing_index);
    object.pacing_index = 0;
  }
  qp_set_state(qp, to);
}

int modify_queue_pair(const File &file, QpObject &object, const Change &c) {
  Qp &qp = *object.qp;
  const auto from = c.has(mask_cur_state) ? static_cast<QpState>(c.in.cur_qp_state) : qp.state;
  const auto to = c.has(mask_state) ? static_cast<QpState>(c.in.qp_state) : from;
  if (!transition_allowed(qp.type, from, to, c.mask)) return EINVAL;
  if (const int error = check_values(file, qp, c); error != 0) return error;
  if (from == QpState::reset && to == QpState::reset) return 0;
  // The device has no command to enter SQD, nor one that revives the send
  // queue of a raw packet QP.
  if (to == QpState::sqd ||
      (qp.type == QpType::raw_packet && from == QpState::sqe && to == QpState::rts))
    return EINVAL;
  // The driver believes the state that the program gives; the command finds the queue pair in
  // its own. Commands to RESET and ERR are for every state.
  if (qp.type != QpType::raw_packet && from != qp.state && to != QpState::reset &&
      to != QpState::err)
    return EINVAL;
  if (c.has(mask_rate_limit))
    if (const int error = change_rate(object, c); error != 0) return error;
  // What was posted has been sent, and what came has been received, before a command
  // of the hardware gets there.
  const bool works = qp.state >= QpState::rtr && qp.state != QpState::err;
  if (works && (to == QpState::reset || to == QpState::err)) settle(object);
  store(object, c);
  // Without a state, or from a state to itself, only attributes change.
  if (c.has(mask_state) && (to != qp.state || to == QpState::err)) enter(object, to);
  return 0;
}

// A DCT comes into being, and gets its number, on the way to RTR; nothing
// leads further.
int modify_dct(const File &file, const Attrs &attrs, QpObject &object, const Change &c) {
  Qp &qp = *object.qp;
  if (!c.has(mask_state)) return EINVAL;
  const auto to = static_cast<QpState>(c.in.qp_state);
  if (qp.state == QpState::reset && to == QpState::init) {
    if (c.mask != (mask_state | mask_access | mask_pkey | mask_port)) return EINVAL;
    if (const int error = check_values(file, qp, c); error != 0) return error;
    store(object, c);
    qp_set_state(qp, to);
    return 0;
  }
  if (qp.state != QpState::init || to != QpState::rtr) return EINVAL;

  constexpr u32 minimum = SOFTHCA_END_OF(mlx5_ib_modify_qp_resp, dctn);
  const u32 room = driver_response_room(attrs);
  if (room < minimum) return EINVAL;
  if (c.mask != (mask_state | mask_rnr_timer | mask_av | mask_mtu)) return EINVAL;
  if (const int error = check_values(file, qp, c); error != 0) return error;
  mlx5_ib_modify_qp_resp resp{};
  resp.response_length = room < sizeof resp ? minimum : sizeof resp;
  resp.dctn = qp.qpn;
  if (const int error = driver_respond(attrs, resp); error != 0) return error;
  store(object, c);
  // The responder's depth is the device's default.
  qp.attr.max_dest_rd_atomic = static_cast<u8>(file.caps().max_rd_atomic);
  qp_set_state(qp, to);
  return 0;
}

int modify(File &file, Attrs &attrs, const ib_uverbs_modify_qp &in, u32 rate_limit) {
  int error = 0;
  QpObject *object = file.objects.get<QpObject>(in.qp_handle, error);
  if (object == nullptr) return error;
  Change c{in, in.attr_mask, rate_limit, {}, {}, {}};
  if (error = check_generic(file, *object->qp, c); error != 0) return error;
  if (object->table) return ENOSYS;  // RSS: nothing to modify
  if (error = check_driver_data(attrs, c); error != 0) return error;
  return object->qp->type == QpType::dct ? modify_dct(file, attrs, *object, c)
                                         : modify_queue_pair(file, *object, c);
}

int modify_qp_standard(File &file, Attrs &attrs) {
  ib_uverbs_modify_qp req{};
  if (const int error = request(attrs, req); error != 0) return error;
  if ((req.attr_mask & ~mask_standard) != 0) return EOPNOTSUPP;
  return modify(file, attrs, req, 0);
}

int modify_qp_extended(File &file, Attrs &attrs) {
  ib_uverbs_ex_modify_qp req{};
  if (const int error = request(attrs, req); error != 0) return error;
  if ((req.base.attr_mask & ~(mask_standard | mask_rate_limit)) != 0) return EOPNOTSUPP;
  if (const int error = modify(file, attrs, req.base, req.rate_limit); error != 0) return error;
  ib_uverbs_ex_modify_qp_resp resp{};
  resp.response_length = response_length(attrs, sizeof resp);
  return respond(attrs, resp);
}

constexpr WriteCommand commands[] = {
    {IB_USER_VERBS_CMD_MODIFY_QP, "WRITE/MODIFY_QP", sizeof(ib_uverbs_modify_qp), 0,
     modify_qp_standard},
    {IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_MODIFY_QP, "WRITE/EX_MODIFY_QP",
     SOFTHCA_END_OF(ib_uverbs_ex_modify_qp, base),
     SOFTHCA_END_OF(ib_uverbs_ex_modify_qp_resp, response_length), modify_qp_extended},
};

}  // namespace

constinit const Family qp_modify_family = {{}, commands};

}  // namespace softhca::uverbs
