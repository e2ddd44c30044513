// Connections: what the other side sends, and what happens when it does not.
#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "cm/cm_state.h"
#include "model/device.h"

namespace softhca::cm {

namespace {

constexpr u64 scan_period_ns = 5'000'000;     // resolution of the timers
constexpr u64 check_period_ns = 200'000'000;  // how soon a dead peer is noticed
constexpr u64 second_sight_ns = 20'000'000;
constexpr u8 mra_service_timeout = 24;  // CMA_CM_MRA_SETTING: 69 seconds

Message answer(const Message &m, MessageType type) {
  Message a;
  a.type = type;
  a.comm_id = m.to_comm_id;
  a.to_comm_id = m.comm_id;
  return a;
}

void refuse(const Party &peer, const Message &m, u8 reason, u8 sidr_status) {
  const bool sidr = m.type == MessageType::sidr_req;
  Message a = answer(m, sidr ? MessageType::sidr_rep : MessageType::rej);
  a.comm_id = 0;  // no id was made
  a.status = sidr ? sidr_status : reason;
  send(peer, a);
}

void send_wait(const Id &id) {
  Message m;
  m.type = MessageType::mra;
  m.comm_id = id.comm_id;
  m.to_comm_id = id.link.peer_comm_id;
  m.service_timeout = mra_service_timeout;
  send(id.link.peer, m);
}

Id *connection_of(const Party &peer, u32 comm_id) {
  for (const auto &[number, id] : manager().ids)
    if (id->link.exists && id->link.peer == peer && id->link.peer_comm_id == comm_id)
      return id.get();
  return nullptr;
}

// The message names a listener of the registry, which may have changed since: check
// it again.
Id *listener_of(const Message &m, const Address &to) {
  Id *id = manager().with_comm_id(m.to_comm_id);
  if (id == nullptr || id->state != IdState::listen) return nullptr;
  if (id->source.service(id->binding.port_space) != m.service) return nullptr;
  return listener_takes(id->source, id->family_only, to) ? id : nullptr;
}

// cma_check_req_qp_type; the two ends of XRC differ.
bool fits(u8 listening, u8 requesting) {
  return listening == (requesting == qp_xrc_ini ? qp_xrc_tgt : requesting);
}

void request(const Party &peer, const Message &m) {
  if (Id *known = connection_of(peer, m.comm_id)) {
    // Sent again because our answer is late or lost.
    if (known->link.state == LinkState::req_received) send_wait(*known);
    else if (known->link.state == LinkState::rep_sent) send(peer, known->link.last);
    return;
  }
  const Address to = Address::ip(m.family, m.destination_ip, 0);
  Id *listener = listener_of(m, to);
  if (listener == nullptr) return refuse(peer, m, reject_invalid_service, sidr_unsupported);
  if (!fits(listener->qp_type, m.qp_type)) return refuse(peer, m, reject_consumer, sidr_reject);
  const Station *port = station_with_gid(m.path.dgid);
  if (port == nullptr) return refuse(peer, m, reject_invalid_gid, sidr_reject);
  // With a full backlog there is no answer: the peer sends the request again.
  if (listener->backlog == 0) return;
  --listener->backlog;

  Id *id = create_id(*listener->channel, listener->port_space, listener->qp_type, 0);
  id->state = IdState::connect;
  id->source = Address::ip(m.family, m.destination_ip, static_cast<u16>(m.service));
  id->destination = Address::ip(m.family, m.source_ip, m.source_port);
  if (m.family == family_ib) {
    SockaddrIb sib = id->source.ib();
    sib.pkey = swap16(m.path.pkey);
    sib.service = swap64(m.service);
    sib.service_mask = ~u64{0};
    id->source.set_ib(sib);
  }
  id->port = port;
  id->path = m.path.reversed();
  id->has_path = m.type == MessageType::req;
  Connection &l = id->link;
  l.exists = true;
  l.peer = peer;
  l.peer_comm_id = m.comm_id;
  l.remote_qpn = m.qpn;
  l.send_psn = m.starting_psn;
  l.responder_resources = m.initiator_depth;
  l.initiator_depth = m.responder_resources;
  l.retry_count = m.retry_count;
  l.rnr_retry_count = m.rnr_retry_count;
  l.ack_timeout = m.ack_timeout;
  l.state = m.type == MessageType::req ? LinkState::req_received : LinkState::sidr_req_received;
  post_request_event(*listener, *id, m);
  if (m.type == MessageType::req) send_wait(*id);
}

void wait_longer(Id &id, const Message &m) {
  if (id.link.state != LinkState::req_sent && id.link.state != LinkState::rep_sent) return;
  id.link.peer_comm_id = m.comm_id;
  id.link.interval_ns = u64{4096} << std::min<u8>(m.service_timeout, 31);
  id.link.deadline_ns = device_clock_ns() + id.link.interval_ns;
}

void reply(Id &id, const Message &m) {
  Connection &l = id.link;
  if (l.state == LinkState::rep_received) return send_wait(id);
  if (l.state == LinkState::established) return send(l.peer, l.last);  // our RTU was lost
  if (l.state != LinkState::req_sent) return;
  stop_timer(id);
  l.state = LinkState::rep_received;
  l.peer_comm_id = m.comm_id;
  l.remote_qpn = m.qpn;
  l.send_psn = m.starting_psn;
  l.responder_resources = m.initiator_depth;
  l.initiator_depth = m.responder_resources;
  l.rnr_retry_count = m.rnr_retry_count;
  send_wait(id);
  if (id.state != IdState::connect) return;
  rdma_ucm_conn_param p{};
  p.private_data_len = rep_private;
  std::memcpy(p.private_data, m.private_data, rep_private);
  p.responder_resources = m.initiator_depth;
  p.initiator_depth = m.responder_resources;
  p.flow_control = m.flow_control;
  p.rnr_retry_count = m.rnr_retry_count;
  p.srq = m.srq;
  p.qp_num = m.qpn;
  post_conn_event(id, EventType::connect_response, 0, p, {m.ece_vendor, m.ece_options});
}

void ready(Id &id) {
  if (id.link.state != LinkState::rep_sent) return;
  stop_timer(id);
  id.link.state = LinkState::established;
  if (id.state == IdState::connect) post_event(id, EventType::established, 0);
}

void refused(Id &id, u8 reason, const u8 *data, u32 length) {
  switch (id.link.state) {
    case LinkState::req_sent:
    case LinkState::req_received:
    case LinkState::rep_sent:
      stop_timer(id);
      id.link.state = LinkState::idle;
      break;
    case LinkState::dreq_sent:
    case LinkState::rep_received:
    case LinkState::established: enter_timewait(id); break;
    default: return;
  }
  if (id.state == IdState::connect)
    post_failure(id, EventType::rejected, reason, data, std::min(length, rej_private), rej_private);
}

// Posts the event once per connection, whichever side disconnected.
void disconnected(Id &id, i32 status) {
  if (id.state != IdState::connect) return;
  id.state = IdState::disconnect;
  post_event(id, EventType::disconnected, status);
}

void disconnect_request(Id &id) {
  switch (id.link.state) {
    case LinkState::rep_sent:
    case LinkState::dreq_sent:
    case LinkState::established:
      stop_timer(id);
      id.link.state = LinkState::dreq_received;
      return disconnected(id, 0);
    case LinkState::timewait: return send_disconnect_reply(id);
    default: return;
  }
}

void disconnect_reply(Id &id) {
  if (id.link.state != LinkState::dreq_sent && id.link.state != LinkState::dreq_received) return;
  enter_timewait(id);
  disconnected(id, 0);
}

void service_reply(Id &id, const Message &m) {
  if (id.link.state != LinkState::sidr_req_sent) return;
  stop_timer(id);
  id.link.state = LinkState::idle;
  if (id.state != IdState::connect) return;
  if (m.status != sidr_success)
    return post_failure(id, EventType::unreachable, m.status, m.private_data, sidr_rep_private,
                        sidr_rep_private);
  rdma_ucm_ud_param p{};
  p.private_data_len = sidr_rep_private;
  std::memcpy(p.private_data, m.private_data, sidr_rep_private);
  if (const int error = set_qkey(id, m.qkey); error != 0)
    return post_ud_event(id, EventType::addr_error, -error, p);
  p.ah_attr = address_handle(*id.port, id.path);
  p.qp_num = m.qpn;
  p.qkey = m.qkey;
  post_ud_event(id, EventType::established, 0, p);
}

void expired(Id &id) {
  Connection &l = id.link;
  if (l.seek_until_ns != 0) return seek_listener(id);
  if (l.state == LinkState::timewait) {
    stop_timer(id);
    l.state = LinkState::idle;
    if (id.state == IdState::disconnect) post_event(id, EventType::timewait_exit, 0);
    return;
  }
  if (l.retries_left != 0) {
    --l.retries_left;
    l.deadline_ns = device_clock_ns() + l.interval_ns;
    return send(l.peer, l.last);
  }
  stop_timer(id);
  switch (l.state) {
    case LinkState::rep_sent: enter_timewait(id); break;
    case LinkState::dreq_sent: enter_timewait(id); return disconnected(id, -ETIMEDOUT);
    default: l.state = LinkState::idle;
  }
  if (id.state == IdState::connect)
    post_failure(id, EventType::unreachable, -ETIMEDOUT, nullptr, 0, 0);
}

// The peer's process died. As when a kernel closes its files, connections end as if it
// had destroyed its ids. A request that it had not answered fails at once,
// without all the retries.
void peer_died(Id &id) {
  switch (id.link.state) {
    case LinkState::req_sent:
    case LinkState::sidr_req_sent:
      stop_timer(id);
      id.link.state = LinkState::idle;
      if (id.state == IdState::connect)
        post_failure(id, EventType::unreachable, -ETIMEDOUT, nullptr, 0, 0);
      return;
    case LinkState::req_received:
    case LinkState::rep_sent:
    case LinkState::rep_received: return refused(id, reject_consumer, nullptr, 0);
    case LinkState::established: return disconnect_request(id);
    case LinkState::dreq_sent: return disconnect_reply(id);
    default: return;
  }
}

bool depends_on_peer(const Id &id) {
  if (id.link.seek_until_ns != 0) return false;
  switch (id.link.state) {
    case LinkState::idle:
    case LinkState::timewait:
    case LinkState::dreq_received:
    case LinkState::sidr_req_received: return false;
    default: return true;
  }
}

// Returns when to check again. A peer counts as dead only if it is found dead twice:
// its last messages may still be on their way.
u64 check_peers(u64 now_ns, bool &any) {
  static auto &suspects = *new std::vector<Party>;
  std::vector<Party> living, dead;
  const auto among = [](const std::vector<Party> &list, const Party &p) {
    return std::find(list.begin(), list.end(), p) != list.end();
  };
  for (const auto &[number, id] : manager().ids) {
    if (!depends_on_peer(*id)) continue;
    const Party &peer = id->link.peer;
    if (among(living, peer)) continue;
    if (!among(dead, peer)) (alive(peer) ? living : dead).push_back(peer);
    if (!among(dead, peer) || !among(suspects, peer)) continue;
    peer_died(*id);
    any = true;
  }
  suspects = dead;
  return now_ns + (dead.empty() ? check_period_ns : second_sight_ns);
}

}  // namespace

void receive(const PacketHeader &h, const u8 *payload) {
  if (h.payload != sizeof(Message)) return;
  Message m;
  std::memcpy(&m, payload, sizeof m);
  // Sent to an older process in our slot, or by another version: ignored.
  if (m.version != message_version || m.to_incarnation != self().incarnation) return;
  const Party peer{h.src_slot, m.incarnation};
  SOFTHCA_LOG(trace, "connection manager: message %u from slot %u, id %#x to %#x",
              static_cast<u32>(m.type), peer.slot, m.comm_id, m.to_comm_id);
  if (m.type == MessageType::req || m.type == MessageType::sidr_req) return request(peer, m);

  // A peer that gives up before our first answer does not have our comm_id.
  Id *id =
      m.to_comm_id != 0 ? manager().with_comm_id(m.to_comm_id) : connection_of(peer, m.comm_id);
  if (id == nullptr || !id->link.exists || id->link.peer != peer) {
    // The id is gone: answer for it, so that the peer does not wait.
    if (m.type == MessageType::dreq) send(peer, answer(m, MessageType::drep));
    return;
  }
  switch (m.type) {
    case MessageType::mra: return wait_longer(*id, m);
    case MessageType::rep: return reply(*id, m);
    case MessageType::rtu: return ready(*id);
    case MessageType::rej: return refused(*id, m.status, m.private_data, m.private_length);
    case MessageType::dreq: return disconnect_request(*id);
    case MessageType::drep: return disconnect_reply(*id);
    case MessageType::sidr_rep: return service_reply(*id, m);
    default: return;
  }
}

bool tick(u64 now_ns) {
  bool any = flush_messages();
  Manager &m = manager();
  if (now_ns < m.next_scan_ns || m.ids.empty()) return any;
  m.next_scan_ns = now_ns + scan_period_ns;
  for (const auto &[number, id] : m.ids) {
    if (id->link.deadline_ns == 0 || now_ns < id->link.deadline_ns) continue;
    expired(*id);
    any = true;
  }
  if (now_ns < m.next_check_ns) return any;
  m.next_check_ns = check_peers(now_ns, any);
  return any;
}

u64 due(u64 now_ns) {
  const Manager &m = manager();
  if (messages_waiting()) return now_ns;
  u64 next = ~u64{0};
  for (const auto &[number, id] : m.ids) {
    if (id->link.deadline_ns != 0) next = std::min(next, id->link.deadline_ns);
    if (depends_on_peer(*id)) next = std::min(next, m.next_check_ns);
  }
  return next;
}

}  // namespace softhca::cm
