// The commands that move a queue pair from state to state, whoever made it.
#include <algorithm>
#include <optional>

#include "config/identity.h"
#include "firmware/qp_context.h"
#include "firmware/queues.h"
#include "model/path_migration.h"

namespace softhca::firmware {

namespace {

// The box: opt_param_mask, qpc, opt_param_mask_95_32 and qpc_data_ext.
constexpr u32 mask_31_at = 16, context_at = qp_context_at,
              context_end = context_at + qp_context_bytes;
constexpr u32 mask_at = 264, context_ext_at = 272;

// opt_param_mask: what is changed beside what a transition is about.
enum Optional : u32 {
  opt_alternate = 1 << 0,
  opt_remote_read = 1 << 1,
  opt_remote_atomic = 1 << 2,
  opt_remote_write = 1 << 3,
  opt_pkey = 1 << 4,
  opt_qkey = 1 << 5,
  opt_rnr_timer = 1 << 6,
  opt_path = 1 << 7,
  opt_send_depth = 1 << 8,
  opt_receive_depth = 1 << 9,
  opt_migration = 1 << 10,
  opt_drain_sigerr = 1 << 11,
  opt_retries = 1 << 12,
  opt_rnr_retries = 1 << 13,
  opt_timeout = 1 << 14,
  opt_port = 1 << 16,
};
constexpr u32 opt_access = opt_remote_read | opt_remote_write | opt_remote_atomic;
constexpr u32 opt_paths = opt_alternate | opt_migration;
constexpr u32 opt_live = opt_access | opt_rnr_timer | opt_paths | opt_qkey;

constexpr u64 stream_bit = 1 << 0, schedule_bit = 1 << 1, udp_sport_bit = 1 << 2;

// A queue pair with its new attributes, which are checked before they are its own.
struct Move {
  Scope &scope;
  const Command &c;
  Qp &qp;
  QpAttributes attr;
  u32 optional;
  std::optional<PathState> migration = {};
  bool accessed = false;
  const u8 *context() const { return c.in.data() + context_at; }
  const u8 *path() const { return context() + qpc::primary_path_at; }
  bool connected() const { return qp.type != QpType::ud && qp.type != QpType::dci && !qp.for_keys; }
  bool has(u32 bit) const { return (optional & bit) != 0; }
  // The driver of a kernel may ask for nothing.
  bool asks() const { return optional != 0 || scope.of_driver(); }
};

Status read_port(Move &m) {
  const u32 port = path::port.in(m.path()), pkey = path::pkey_index.in(m.path());
  if ((port < 1 || port > m.scope.device.port_count())) return Status::bad_param;
  if (pkey >= pkey_table_size(m.scope.device.port(port).link)) return Status::bad_param;
  m.attr.port = static_cast<u8>(port);
  m.attr.pkey_index = static_cast<u16>(pkey);
  return Status::ok;
}

Status read_pkey(Move &m) {
  const u32 pkey = path::pkey_index.in(m.path());
  if (pkey >= pkey_table_size(m.scope.device.port(m.attr.port).link)) return Status::bad_param;
  m.attr.pkey_index = static_cast<u16>(pkey);
  return Status::ok;
}

// The access bits that `which` selects. Atomics need a mode besides.
void read_access(Move &m, u32 which) {
  const u8 *context = m.context();
  const auto take = [&](u32 bit, QpField field, u32 access) {
    if ((which & bit) == 0) return;
    m.attr.access = (m.attr.access & ~access) | (field.in(context) != 0 ? access : 0);
  };
  take(opt_remote_read, qpc::remote_read, access_remote_read);
  take(opt_remote_write, qpc::remote_write, access_remote_write);
  if (qpc::atomic_mode.in(context) != 0 || qpc::remote_atomic.in(context) == 0)
    take(opt_remote_atomic, qpc::remote_atomic, access_remote_atomic);
}

Status read_route(Move &m) {
  const u32 port = path::port.in(m.path());
  if (port != 0 && port != m.attr.port) return Status::bad_param;
  m.attr.av = read_path(m.scope.device, m.attr.port, m.path());
  if (check_route(m.scope.device, m.attr.av) != 0) return Status::bad_param;
  m.attr.udp_sport = m.scope.device.ethernet(m.attr.port)
                         ? static_cast<u16>(path::udp_sport.in(m.path()))
                         : u16{0};
  return Status::ok;
}

// A second path, to which the connection moves: InfiniBand only.
Status read_alternate(Move &m) {
  const Device &device = m.scope.device;
  const u8 *at = m.context() + qpc::secondary_path_at;
  const u32 port = path::port.in(at), pkey = path::pkey_index.in(at);
  if (!m.connected() || !device.caps.path_migration || port < 1 || port > device.port_count() ||
      device.ethernet(static_cast<u8>(port)) || pkey >= pkey_table_size(LinkLayer::infiniband))
    return Status::bad_param;
  const AddressVector av = read_path(device, static_cast<u8>(port), at);
  if (check_route(device, av) != 0) return Status::bad_param;
  m.attr.alt_av = av;
  m.attr.alt_port = static_cast<u8>(port);
  m.attr.alt_pkey_index = static_cast<u16>(pkey);
  m.attr.alt_timeout = static_cast<u8>(path::ack_timeout.in(at));
  return Status::ok;
}

// Software asks for REARM; only the device enters ARMED.
Status read_migration(Move &m) {
  const u32 state = qpc::pm_state.in(m.context());
  if (state != qpc::pm_migrated && (state != qpc::pm_rearm || m.attr.alt_port == 0))
    return Status::bad_param;
  m.migration = state == qpc::pm_rearm ? PathState::rearm : PathState::migrated;
  return Status::ok;
}

// Depths are logarithms.
Status read_depth(const Move &m, QpField field, u8 &depth) {
  const u32 n = 1u << field.in(m.context());
  if (n > m.scope.caps().max_rd_atomic) return Status::bad_param;
  depth = static_cast<u8>(n);
  return Status::ok;
}

Status read_optional(Move &m) {
  const u8 *context = m.context();
  read_access(m, m.optional);
  if (m.has(opt_pkey))
    if (const Status s = read_pkey(m); s != Status::ok) return s;
  if (m.has(opt_qkey)) m.attr.qkey = qpc::q_key.in(context);
  if (m.has(opt_rnr_timer)) m.attr.min_rnr_timer = static_cast<u8>(qpc::min_rnr_nak.in(context));
  if (m.has(opt_path))
    if (const Status s = read_route(m); s != Status::ok) return s;
  if (m.has(opt_send_depth))
    if (const Status s = read_depth(m, qpc::log_sra_max, m.attr.max_rd_atomic); s != Status::ok)
      return s;
  if (m.has(opt_receive_depth))
    if (const Status s = read_depth(m, qpc::log_rra_max, m.attr.max_dest_rd_atomic);
        s != Status::ok)
      return s;
  if (m.has(opt_retries)) m.attr.retry_count = static_cast<u8>(qpc::retry_count.in(context));
  if (m.has(opt_rnr_retries)) m.attr.rnr_retry = static_cast<u8>(qpc::rnr_retry.in(context));
  if (m.has(opt_timeout)) m.attr.timeout = static_cast<u8>(path::ack_timeout.in(m.path()));
  if (m.has(opt_alternate))
    if (const Status s = read_alternate(m); s != Status::ok) return s;
  return m.has(opt_migration) ? read_migration(m) : Status::ok;
}

Status to_init(Move &m) {
  if (const Status s = read_port(m); s != Status::ok) return s;
  if (m.qp.type == QpType::ud) m.attr.qkey = qpc::q_key.in(m.context());
  read_access(m, opt_access);
  m.qp.counters = m.scope.find_counters(qpc::counter_set.in(m.context()));
  return Status::ok;
}

Status to_rtr(Move &m) {
  const u8 *context = m.context();
  constexpr u32 largest_mtu = 5, largest_log_message = 30;
  if (m.qp.type == QpType::ud) {
    m.attr.path_mtu = largest_mtu;
  } else {
    const u32 mtu = qpc::mtu.in(context);
    if (mtu == 0 || mtu > largest_mtu) return Status::bad_param;
    m.attr.path_mtu = static_cast<u8>(mtu);
  }
  if (qpc::log_msg_max.in(context) > largest_log_message) return Status::bad_param;
  if (m.connected()) {
    m.attr.dest_qpn = qpc::remote_qpn.in(context);
    m.attr.rq_psn = qpc::next_receive_psn.in(context);
    m.attr.min_rnr_timer = static_cast<u8>(qpc::min_rnr_nak.in(context));
    if (const Status s = read_route(m); s != Status::ok) return s;
    if (const Status s = read_depth(m, qpc::log_rra_max, m.attr.max_dest_rd_atomic);
        s != Status::ok)
      return s;
  } else if (m.qp.type == QpType::dci) {
    // The way is in the work requests; how packets are marked is not.
    m.attr.av = read_path(m.scope.device, m.attr.port, m.path());
  }
  return read_optional(m);
}

Status to_rts(Move &m) {
  const u8 *context = m.context();
  m.attr.sq_psn = qpc::next_send_psn.in(context);
  if (m.qp.type != QpType::ud && m.qp.type != QpType::uc) {
    m.attr.retry_count = static_cast<u8>(qpc::retry_count.in(context));
    m.attr.rnr_retry = static_cast<u8>(qpc::rnr_retry.in(context));
    m.attr.timeout = static_cast<u8>(path::ack_timeout.in(m.path()));
    if (const Status s = read_depth(m, qpc::log_sra_max, m.attr.max_rd_atomic); s != Status::ok)
      return s;
  }
  return read_optional(m);
}

constexpr QpState any = static_cast<QpState>(0xff);

struct Transition {
  Opcode command;
  QpState from, to;
  u32 optional;
  Status (*read)(Move &);
};
constexpr Transition transitions[] = {
    {Opcode::rst2init_qp, QpState::reset, QpState::init, 0, to_init},
    {Opcode::init2rtr_qp, QpState::init, QpState::rtr, opt_access | opt_pkey | opt_qkey | opt_paths,
     to_rtr},
    {Opcode::rtr2rts_qp, QpState::rtr, QpState::rts,
     opt_live | opt_path | opt_send_depth | opt_retries | opt_rnr_retries | opt_timeout, to_rts},
    {Opcode::sqerr2rts_qp, QpState::sqe, QpState::rts, opt_live, read_optional},
    {Opcode::sqd_rts_qp, QpState::sqd, QpState::rts, opt_live, read_optional},
    {Opcode::to_err_qp, any, QpState::err, 0, nullptr},
    {Opcode::to_rst_qp, any, QpState::reset, 0, nullptr},
};

void keep_attributes(Move &m) {
  m.qp.attr = m.attr;
  m.accessed = true;
  if (m.migration) set_migration(m.qp, *m.migration);
}

Status move(Move &m, const Transition &t) {
  if (t.from != any && m.qp.state != t.from) return Status::bad_qp_state;
  if ((m.optional & ~t.optional) != 0) return Status::bad_param;
  if (t.to == QpState::reset) m.attr = {};
  if (t.read != nullptr)
    if (const Status s = t.read(m); s != Status::ok) return s;
  keep_attributes(m);
  if (t.command == Opcode::init2rtr_qp)
    m.qp.max_message_bytes = 1u << qpc::log_msg_max.in(m.context());
  if (t.to != m.qp.state || t.to == QpState::reset) qp_set_state(m.qp, t.to);
  return Status::ok;
}

// mlx5dv_modify_qp_udp_sport: the UDP source port of RoCE v2, under which
// switches spread the flows.
Status modify_udp_sport(const Command &c, Qp &qp) {
  const bool connected = qp.type == QpType::rc || qp.type == QpType::uc;
  if (!connected || !qp.device->ethernet(std::max<u8>(qp.attr.port, 1))) return Status::bad_param;
  if (qp.state != QpState::rts) return Status::bad_qp_state;
  qp.attr.udp_sport =
      static_cast<u16>(path::udp_sport.in(c.in.data() + context_at + qpc::primary_path_at));
  return Status::ok;
}

// mlx5dv_dci_stream_id_reset.
Status reset_stream(const Command &c, Qp &qp) {
  if (c.in.size() < context_ext_at + 4 || qp.max_errored_streams == 0) return Status::bad_param;
  if (qp.state != QpState::rts) return Status::bad_qp_state;
  return qp_reset_stream(qp, load_be16(c.in.data() + context_ext_at + 2)) ? Status::ok
                                                                          : Status::bad_resource;
}

// mlx5dv_modify_qp_sched_elem.
Status modify_schedule(const Scope &scope, const Command &c, Qp &qp) {
  if (c.in.size() < context_ext_at + 12 || !qp.device->caps.qp_scheduling) return Status::bad_param;
  std::shared_ptr<ScheduleElement> request, response;
  const u8 *ids = c.in.data() + context_ext_at + 4;
  if (!scope.find_schedule(load_be32(ids), request) ||
      !scope.find_schedule(load_be32(ids + 4), response))
    return Status::bad_resource;
  qp.request_schedule = std::move(request);
  qp.response_schedule = std::move(response);
  return Status::ok;
}

// RTS2RTS_QP: one of the extended parameters, or those of the first mask.
Status modify_rts(Move &m, u64 extended) {
  Qp &qp = m.qp;
  if (extended != 0 && m.optional != 0) return Status::bad_param;
  switch (extended) {
    case 0: break;
    case stream_bit: return reset_stream(m.c, qp);
    case schedule_bit:
      return qp.state == QpState::rts ? modify_schedule(m.scope, m.c, qp) : Status::bad_qp_state;
    case udp_sport_bit: return modify_udp_sport(m.c, qp);
    default: return Status::bad_param;
  }
  if (!m.asks() || (m.optional & ~opt_live) != 0) return Status::bad_param;
  if (qp.state != QpState::rts) return Status::bad_qp_state;
  if (const Status s = read_optional(m); s != Status::ok) return s;
  keep_attributes(m);
  return Status::ok;
}

// INIT2INIT_QP: the queue pair is to stop at a wrong signature, gets its scheduling
// elements, or other attributes of its first state.
Status modify_init(Move &m, u64 extended) {
  constexpr u32 of_state = opt_access | opt_pkey | opt_qkey | opt_port;
  Qp &qp = m.qp;
  if (qp.state != QpState::init) return Status::bad_qp_state;
  if (m.optional == 0 && extended == schedule_bit) return modify_schedule(m.scope, m.c, qp);
  if (!m.asks() || extended != 0) return Status::bad_param;
  if (m.optional == opt_drain_sigerr && qp.device->caps.signature) {
    qp.drain_sigerr = qpc::drain_sigerr.in(m.context()) != 0;
    return Status::ok;
  }
  if ((m.optional & ~of_state) != 0) return Status::bad_param;
  if (m.has(opt_port))
    if (const Status s = read_port(m); s != Status::ok) return s;
  if (const Status s = read_optional(m); s != Status::ok) return s;
  keep_attributes(m);
  return Status::ok;
}

}  // namespace

bool ends_qp(u16 opcode) {
  return opcode == static_cast<u16>(Opcode::to_err_qp) ||
         opcode == static_cast<u16>(Opcode::to_rst_qp);
}

bool modifies_qp(u16 opcode) {
  const auto o = static_cast<Opcode>(opcode);
  return o == Opcode::rts2rts_qp || o == Opcode::init2init_qp ||
         std::any_of(std::begin(transitions), std::end(transitions),
                     [&](const Transition &row) { return row.command == o; });
}

Status modify_qp(Scope &scope, const Command &c, Qp &qp, bool &accessed) {
  const auto opcode = static_cast<Opcode>(c.opcode());
  const bool ends = ends_qp(c.opcode());
  if (!ends && c.in.size() < context_end) return Status::bad_input_length;
  Move m{scope, c, qp, qp.attr, ends ? 0 : load_be32(c.in.data() + mask_31_at)};
  const u64 extended = c.in.size() >= mask_at + 8 ? load_be64(c.in.data() + mask_at) : 0;
  const auto *t = std::find_if(std::begin(transitions), std::end(transitions),
                               [&](const Transition &row) { return row.command == opcode; });
  const Status status = opcode == Opcode::rts2rts_qp     ? modify_rts(m, extended)
                        : opcode == Opcode::init2init_qp ? modify_init(m, extended)
                        : t == std::end(transitions)     ? Status::bad_op
                                                         : move(m, *t);
  accessed = m.accessed;
  return status;
}

}  // namespace softhca::firmware
