// Event queues and the events in them.
#include <sys/socket.h>

#include <algorithm>

#include "base/log.h"
#include "cm/cm_state.h"

namespace softhca::cm {

namespace {

void queue(Id &id, Event &event) {
  // An id from a connection request has no context until it is accepted. Its
  // events would have no receiver; the accept fails instead.
  if (id.uid == 0) return;
  event.id = &id;
  event.resp.uid = id.uid;
  event.resp.id = id.number;
  id.channel->post(event);
}

Event make_event(EventType type, i32 status) {
  Event e;
  e.resp.event = static_cast<u32>(type);
  e.resp.status = static_cast<u32>(status);
  return e;
}

}  // namespace

void Channel::post(const Event &event) {
  SOFTHCA_LOG(debug, "connection manager: event %u, id %u, status %d", event.resp.event,
              event.resp.id, static_cast<i32>(event.resp.status));
  events.push_back(event);
  // One byte per event, so that edge-triggered waiters see each. When no more
  // fit, the descriptor is readable anyway.
  (void)::send(device_end, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void Channel::update() {
  if (!events.empty()) return;
  char bytes[64];
  while (recv(own_end, bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
  }
}

void Channel::remove_events_of(const Id *id) {
  std::erase_if(events, [&](const Event &e) { return e.id == id; });
  update();
}

void Channel::remove_events_of(const Multicast *group) {
  std::erase_if(events, [&](const Event &e) { return e.multicast == group; });
  update();
}

void post_event(Id &id, EventType type, i32 status) {
  Event e = make_event(type, status);
  queue(id, e);
}

void post_written_event(Id &id, u32 type, u32 status, u64 argument) {
  Event e = make_event(static_cast<EventType>(type), static_cast<i32>(status));
  std::memcpy(&e.resp.param, &argument, sizeof argument);
  queue(id, e);
}

void post_conn_event(Id &id, EventType type, i32 status, const rdma_ucm_conn_param &param,
                     const rdma_ucm_ece &ece) {
  Event e = make_event(type, status);
  e.resp.param.conn = param;
  e.resp.ece = ece;
  queue(id, e);
}

void post_ud_event(Id &id, EventType type, i32 status, const rdma_ucm_ud_param &param) {
  Event e = make_event(type, status);
  e.resp.param.ud = param;
  queue(id, e);
}

void post_failure(Id &id, EventType type, i32 status, const u8 *data, u32 length,
                  u32 reported_length) {
  Event e = make_event(type, status);
  u8 *to = id.ud() ? e.resp.param.ud.private_data : e.resp.param.conn.private_data;
  if (length != 0) std::memcpy(to, data, length);
  (id.ud() ? e.resp.param.ud.private_data_len : e.resp.param.conn.private_data_len) =
      static_cast<u8>(reported_length);
  queue(id, e);
}

// The receiver's view of the requester's depths: what the one may issue, the
// other must answer.
void post_request_event(Id &listener, Id &connection, const Message &m) {
  Event e = make_event(EventType::connect_request, 0);
  e.id = &listener;
  e.connection = &connection;
  e.resp.uid = listener.uid;
  e.resp.id = connection.number;
  const u32 header = private_header(listener.source.family());
  if (connection.ud()) {
    rdma_ucm_ud_param &p = e.resp.param.ud;
    p.private_data_len = static_cast<u8>(sidr_req_private - header);
    std::memcpy(p.private_data, m.private_data, p.private_data_len);
  } else {
    rdma_ucm_conn_param &p = e.resp.param.conn;
    p.private_data_len = static_cast<u8>(req_private - header);
    std::memcpy(p.private_data, m.private_data, p.private_data_len);
    p.responder_resources = m.initiator_depth;
    p.initiator_depth = m.responder_resources;
    p.flow_control = m.flow_control;
    p.retry_count = m.retry_count;
    p.rnr_retry_count = m.rnr_retry_count;
    p.srq = m.srq;
    p.qp_num = m.qpn;
    e.resp.ece = {m.ece_vendor, m.ece_options};
  }
  listener.channel->post(e);
}

void post_multicast_event(Multicast &group, EventType type, i32 status,
                          const rdma_ucm_ud_param &param) {
  Event e = make_event(type, status);
  e.id = group.id;
  e.multicast = &group;
  e.resp.uid = group.uid;
  e.resp.id = group.number;
  e.resp.param.ud = param;
  group.id->channel->post(e);
}

}  // namespace softhca::cm
