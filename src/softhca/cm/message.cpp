#include "cm/message.h"

#include <deque>

#include "model/device.h"
#include "model/transmit.h"

namespace softhca::cm {

namespace {

struct Queued {
  u64 number;
  u16 slot;
  Message message;
};

std::deque<Queued> &outbox() {
  static auto &queue = *new std::deque<Queued>;
  return queue;
}

u64 g_queued;

bool send_now(u16 slot, const Message &m) {
  PacketHeader header{};
  header.kind = PacketKind::cm;
  header.payload = sizeof m;
  return transmit(slot, header, nullptr, 0, reinterpret_cast<const u8 *>(&m)) != Sent::full;
}

}  // namespace

Path Path::reversed() const {
  Path p = *this;
  std::swap(p.sgid, p.dgid);
  std::swap(p.slid, p.dlid);
  return p;
}

void send(const Party &to, const Message &message) {
  Message m = message;
  m.incarnation = self().incarnation;
  m.to_incarnation = to.incarnation;
  // Behind others that wait, even for another process: order costs nothing here.
  if (!outbox().empty() || !send_now(to.slot, m)) outbox().push_back({++g_queued, to.slot, m});
}

bool flush_messages() {
  bool any = false;
  auto &queue = outbox();
  if (queue.empty()) return false;
  // A full ring holds up only its own messages.
  u64 full[max_slots / 64] = {};
  for (auto it = queue.begin(); it != queue.end();) {
    u64 &word = full[it->slot / 64];
    const u64 bit = u64{1} << it->slot % 64;
    if ((word & bit) != 0 || !send_now(it->slot, it->message)) {
      word |= bit;
      ++it;
      continue;
    }
    it = queue.erase(it);
    any = true;
  }
  return any;
}

bool messages_waiting() { return !outbox().empty(); }

u64 newest_waiting() { return g_queued; }

bool waiting_since(u64 number) { return !outbox().empty() && outbox().back().number > number; }

void forget_messages() { outbox().clear(); }

}  // namespace softhca::cm
