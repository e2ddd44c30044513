// Connections: the requests of either side. The states and the refusals are
// those of ib_send_cm_*() in cm.c.
#include <rdma/ib_user_verbs.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "cm/cm_state.h"
#include "model/device.h"

namespace softhca::cm {

namespace {

constexpr u32 max_backlog = 1024;  // net.rdma_ucm.max_backlog
constexpr u8 max_retry = 7;        // three bits in the messages
// CMA_CM_RESPONSE_TIMEOUT and CMA_MAX_CM_RETRIES.
constexpr u64 response_ns = u64{4096} << 20;
constexpr u32 retries = 15;
// How long to search for a listener before the request is refused. On a real network
// the round trip gives a server time to get ready: perftest's -R requests its second
// connection while the server still prepares it, and here both may share
// one processor with others.
constexpr u64 seek_ns = 250'000'000, seek_period_ns = 5'000'000;
constexpr u8 ca_ack_delay = 16;  // local_ca_ack_delay of query_device
constexpr u32 ib_event_comm_est = 4;

// cm_ack_timeout: from the life time of packets on the path to the time-out of
// a QP's acknowledges, adding the responder's own delay.
u8 ack_timeout(u8 lifetime) {
  u32 t = lifetime + 1u;
  if (t >= ca_ack_delay) t += ca_ack_delay >= t - 1;
  else t = ca_ack_delay + (t >= ca_ack_delay - 1u);
  return static_cast<u8>(std::min(31u, t));
}

void start_timer(Id &id) {
  id.link.interval_ns = response_ns;
  id.link.retries_left = retries;
  id.link.deadline_ns = device_clock_ns() + response_ns;
}

Message first_message(const Id &id, MessageType type, const ConnectParameters &p) {
  Message m;
  m.type = type;
  m.qp_type = id.qp_type;
  m.comm_id = id.comm_id;
  m.service = id.destination.service(id.port_space);
  m.family = id.source.family();
  m.source_ip = id.source.host();
  m.source_port = id.source.port();
  m.destination_ip = id.destination.host();
  m.path = id.path;
  m.qpn = id.qpn;
  m.starting_psn = id.starting_psn;
  m.responder_resources = p.conn.responder_resources;
  m.initiator_depth = p.conn.initiator_depth;
  m.flow_control = p.conn.flow_control;
  m.retry_count = std::min(max_retry, p.conn.retry_count);
  m.rnr_retry_count = std::min(max_retry, p.conn.rnr_retry_count);
  m.srq = id.srq;
  m.ack_timeout = ack_timeout(id.path.lifetime);
  m.ece_vendor = p.ece.vendor_id;
  m.ece_options = p.ece.attr_mod;
  m.private_length = p.conn.private_data_len;
  std::memcpy(m.private_data, p.conn.private_data, m.private_length);
  return m;
}

// A message about a connection that both sides have.
Message later_message(const Id &id, MessageType type) {
  Message m;
  m.type = type;
  m.comm_id = id.comm_id;
  m.to_comm_id = id.link.peer_comm_id;
  return m;
}

void send_and_wait(Id &id, LinkState state, const Message &m) {
  id.link.state = state;
  id.link.last = m;
  start_timer(id);
  send(id.link.peer, m);
}

void take_qp(Id &id, const rdma_ucm_conn_param &p) {
  id.qpn = p.qp_num & 0xffffff;
  id.srq = p.srq != 0;
}

int send_sidr_reply(Id &id, u8 status, u32 qkey, const u8 *data, u32 length) {
  if (id.link.state != LinkState::sidr_req_received || length > sidr_rep_private) return EINVAL;
  Message m = later_message(id, MessageType::sidr_rep);
  m.status = status;
  if (status == sidr_success) {
    if (const int error = set_qkey(id, qkey); error != 0) return error;
    m.qpn = id.qpn;
    m.qkey = id.qkey;
  }
  m.private_length = static_cast<u8>(length);
  if (length != 0) std::memcpy(m.private_data, data, length);
  send(id.link.peer, m);
  id.link.state = LinkState::idle;
  return 0;
}

int send_reply(Id &id, const ConnectParameters &p) {
  if (id.link.state != LinkState::req_received || p.conn.private_data_len > rep_private)
    return EINVAL;
  id.link.responder_resources = p.conn.responder_resources;
  id.link.initiator_depth = p.conn.initiator_depth;
  Message m = later_message(id, MessageType::rep);
  m.qpn = id.qpn;
  m.starting_psn = id.starting_psn;
  m.responder_resources = p.conn.responder_resources;
  m.initiator_depth = p.conn.initiator_depth;
  m.flow_control = p.conn.flow_control;
  m.rnr_retry_count = std::min(max_retry, p.conn.rnr_retry_count);
  m.srq = id.srq;
  m.ece_vendor = p.ece.vendor_id;
  m.ece_options = p.ece.attr_mod;
  m.private_length = p.conn.private_data_len;
  std::memcpy(m.private_data, p.conn.private_data, m.private_length);
  send_and_wait(id, LinkState::rep_sent, m);
  return 0;
}

int send_ready(Id &id) {
  if (id.link.state != LinkState::rep_received) return EINVAL;
  id.link.state = LinkState::established;
  id.link.last = later_message(id, MessageType::rtu);
  send(id.link.peer, id.link.last);
  return 0;
}

}  // namespace

void stop_timer(Id &id) { id.link.deadline_ns = 0; }

void enter_timewait(Id &id) {
  // 4.096 us * 2^n, rounded as cm_convert_to_ms() does it.
  const u32 shift = id.link.ack_timeout > 8 ? id.link.ack_timeout - 8u : 0u;
  id.link.state = LinkState::timewait;
  id.link.deadline_ns = device_clock_ns() + (u64{1'000'000} << shift);
}

void send_reject(Id &id, u8 reason, const u8 *data, u32 length) {
  Message m = later_message(id, MessageType::rej);
  m.status = reason;
  m.private_length = static_cast<u8>(length);
  if (length != 0) std::memcpy(m.private_data, data, length);
  send(id.link.peer, m);
}

void send_disconnect_reply(Id &id) { send(id.link.peer, later_message(id, MessageType::drep)); }

int listen(Id &id, i32 backlog) {
  id.backlog = backlog > 0 && static_cast<u32>(backlog) < max_backlog ? static_cast<u32>(backlog)
                                                                      : max_backlog;
  if (id.state == IdState::idle)
    if (const int error = bind_id(id, Address::any(AF_INET)); error != 0) return error;
  if (id.state != IdState::bound) return EINVAL;
  if (const int error = listen_port(id.binding); error != 0) return error;
  id.state = IdState::listen;
  id.link.exists = id.port != nullptr;
  return 0;
}

int connect(Id &id, const ConnectParameters &p) {
  if (id.state != IdState::route_resolved) return EINVAL;
  const u32 room = (id.ud() ? sidr_req_private : req_private) - private_header(id.source.family());
  if (p.conn.private_data_len > room) return EINVAL;
  take_qp(id, p.conn);
  const Message request = first_message(id, id.ud() ? MessageType::sidr_req : MessageType::req, p);
  id.state = IdState::connect;
  Connection &l = id.link;
  l = {};
  l.exists = true;
  l.ack_timeout = request.ack_timeout;
  l.retry_count = request.retry_count;
  l.responder_resources = p.conn.responder_resources;
  l.initiator_depth = p.conn.initiator_depth;

  l.last = request;
  l.state = id.ud() ? LinkState::sidr_req_sent : LinkState::req_sent;
  l.seek_until_ns = device_clock_ns() + seek_ns;
  seek_listener(id);
  return 0;
}

void seek_listener(Id &id) {
  Connection &l = id.link;
  Listener listener;
  if (find_listener(id.remote.host, l.last.service, id.destination, listener)) {
    l.seek_until_ns = 0;
    l.peer = listener.party;
    l.last.to_comm_id = listener.owner;
    start_timer(id);
    return send(l.peer, l.last);
  }
  const u64 now = device_clock_ns();
  if (now < l.seek_until_ns) {
    l.deadline_ns = now + seek_period_ns;
    return;
  }
  stop_timer(id);
  l.seek_until_ns = 0;
  l.state = LinkState::idle;
  // What the CM of that host answers.
  if (id.ud())
    post_failure(id, EventType::unreachable, sidr_unsupported, nullptr, 0, sidr_rep_private);
  else post_failure(id, EventType::rejected, reject_invalid_service, nullptr, 0, rej_private);
}

int accept(Id &id, const ConnectParameters *p, u64 uid) {
  if (id.state != IdState::connect) return EINVAL;
  if (p != nullptr) take_qp(id, p->conn);
  int error;
  if (id.ud())
    error = send_sidr_reply(id, sidr_success, 0, p != nullptr ? p->conn.private_data : nullptr,
                            p != nullptr ? p->conn.private_data_len : 0u);
  else error = p != nullptr ? send_reply(id, *p) : send_ready(id);
  if (error != 0) {
    reject(id, reject_consumer, nullptr, 0);
    return error;
  }
  if (p != nullptr) id.uid = uid;
  return 0;
}

int reject(Id &id, u8 reason, const u8 *data, u32 length) {
  if (!id.link.exists) return EINVAL;
  if (id.ud()) return send_sidr_reply(id, sidr_reject, 0, data, length);
  if (length > rej_private) return EINVAL;
  switch (id.link.state) {
    case LinkState::req_sent:
    case LinkState::req_received:
    case LinkState::rep_received:
      send_reject(id, reason, data, length);
      stop_timer(id);
      id.link.state = LinkState::idle;
      return 0;
    case LinkState::rep_sent:
      send_reject(id, reason, data, length);
      enter_timewait(id);
      return 0;
    default: return EINVAL;
  }
}

// Starts or answers a disconnect. In other states it does nothing and returns 0.
int disconnect(Id &id) {
  if (!id.link.exists) return EINVAL;
  if (id.link.state == LinkState::established) {
    send_and_wait(id, LinkState::dreq_sent, later_message(id, MessageType::dreq));
  } else if (id.link.state == LinkState::dreq_received) {
    send_disconnect_reply(id);
    enter_timewait(id);
  }
  return 0;
}

int notify(Id &id, u32 event) {
  if (!id.link.exists) return EINVAL;
  if (event != ib_event_comm_est) return EINVAL;  // PATH_MIG: no path was ever loaded
  if (id.link.state == LinkState::established) return EISCONN;
  if (id.link.state != LinkState::rep_sent) return EINVAL;
  stop_timer(id);
  id.link.state = LinkState::established;
  post_event(id, EventType::established, 0);
  return 0;
}

}  // namespace softhca::cm
