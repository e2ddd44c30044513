// Ids: making, finding, ending them.
#include <algorithm>
#include <cerrno>
#include <random>

#include "base/log.h"
#include "cm/cm_state.h"
#include "model/device.h"

namespace softhca::cm {

namespace {

u32 random_word() {
  static auto &generator = *new std::mt19937{std::random_device{}()};
  return static_cast<u32>(generator());
}

// The lowest free number, as the kernel's tables do it.
u32 free_number(const std::map<u32, std::unique_ptr<Id>> &taken) {
  u32 n = 0;
  for (const auto &entry : taken) {
    if (entry.first != n) break;
    ++n;
  }
  return n;
}

u32 free_comm_id(Manager &m) {
  if (m.next_comm_id == 0) m.next_comm_id = random_word();
  u32 id;
  do {
    id = m.next_comm_id++;
  } while (id == 0 || m.by_comm_id.count(id) != 0);
  return id;
}

// What the peer learns when its partner goes away (ib_destroy_cm_id).
void end_connection(Id &id, bool refuse) {
  Connection &l = id.link;
  switch (l.state) {
    case LinkState::req_sent: send_reject(id, reject_timeout, nullptr, 0); break;
    case LinkState::req_received:
      if (refuse) send_reject(id, reject_consumer, nullptr, 0);
      break;
    case LinkState::rep_sent:
    case LinkState::rep_received: send_reject(id, reject_consumer, nullptr, 0); break;
    case LinkState::established:
      // The target of an XRC connection may outlive its id.
      if (id.qp_type != qp_xrc_tgt) {
        Message m;
        m.type = MessageType::dreq;
        m.comm_id = id.comm_id;
        m.to_comm_id = l.peer_comm_id;
        send(l.peer, m);
      }
      break;
    case LinkState::dreq_received: send_disconnect_reply(id); break;
    case LinkState::sidr_req_received: reject(id, 0, nullptr, 0); break;
    case LinkState::idle:
    case LinkState::dreq_sent:
    case LinkState::timewait:
    case LinkState::sidr_req_sent: break;
  }
  l.state = LinkState::idle;
}

}  // namespace

Manager &manager() {
  static auto &m = *new Manager;  // never destroyed: the engine may outlive static destructors
  return m;
}

Id *Manager::with_comm_id(u32 comm_id) const {
  const auto it = by_comm_id.find(comm_id);
  return it != by_comm_id.end() ? it->second : nullptr;
}

Id *create_id(Channel &channel, u16 port_space, u8 qp_type, u64 uid) {
  Manager &m = manager();
  auto id = std::make_unique<Id>();
  id->number = free_number(m.ids);
  id->comm_id = free_comm_id(m);
  id->uid = uid;
  id->channel = &channel;
  id->port_space = port_space;
  id->qp_type = qp_type;
  id->starting_psn = random_word() & 0xffffff;
  Id *raw = id.get();
  m.by_comm_id[raw->comm_id] = raw;
  m.ids.emplace(raw->number, std::move(id));
  return raw;
}

Id *find_id(const Channel &channel, u32 number, int &error) {
  const auto it = manager().ids.find(number);
  if (it == manager().ids.end()) {
    error = ENOENT;
    return nullptr;
  }
  error = it->second->channel == &channel ? 0 : EINVAL;
  return error == 0 ? it->second.get() : nullptr;
}

void destroy_id(Id *id, bool refuse) {
  Manager &m = manager();
  // Connections that were never fetched go with their listener.
  std::vector<Id *> waiting;
  for (const Event &e : id->channel->events)
    if (e.id == id && e.connection != nullptr) waiting.push_back(e.connection);
  id->channel->remove_events_of(id);
  for (Id *connection : waiting) destroy_id(connection);

  end_connection(*id, refuse);
  while (!id->groups.empty()) leave(id->groups.back().get());
  if (id->has_port) unbind_port(id->binding);
  m.by_comm_id.erase(id->comm_id);
  m.ids.erase(id->number);
}

void forget_all_ids() {
  Manager &m = manager();
  m.ids.clear();
  m.by_comm_id.clear();
  m.groups.clear();
  m.next_comm_id = 0;
}

}  // namespace softhca::cm
