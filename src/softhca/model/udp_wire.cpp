#include "model/udp_wire.h"

#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <vector>

#include "base/log.h"
#include "config/identity.h"
#include "model/bth.h"
#include "model/capture.h"
#include "model/device.h"
#include "model/packets.h"
#include "model/requester.h"

namespace softhca {

namespace {

UdpLink *g_link;

std::atomic<Fabric *> g_fabric;  // of the process, for the thread that waits for packets

void arrived() {
  if (Fabric *fabric = g_fabric.load(std::memory_order_acquire)) fabric->wake();
}

// Packets for which RoCE v2 has no format. Logged once.
bool refuse(const char *what) {
  static bool complained;
  if (!complained)
    SOFTHCA_LOG(warn, "wire udp: packets of %s are dropped: RoCE v2 has no format for them", what);
  complained = true;
  return false;
}

bool has_form(const PacketHeader &h) {
  if (h.service == Service::dc) return refuse("dynamic connections");

  const auto op = static_cast<WqeOpcode>(h.opcode);
  if ((h.kind == PacketKind::request && h.atomic_size != 0 &&
       (h.atomic_size != 8 || op == WqeOpcode::masked_cs || op == WqeOpcode::masked_fa)) ||
      (h.kind == PacketKind::atomic_response && h.payload != 8))
    return refuse("extended atomics");
  return true;
}

// All packets of a message but the last one are full, and the last one is not empty.
bool length_fits(const PacketHeader &h, u32 mtu) {
  const auto op = static_cast<WqeOpcode>(h.opcode);
  if (op == WqeOpcode::rdma_read) return h.message_bytes <= 1u << 31;
  if (op == WqeOpcode::atomic_cs || op == WqeOpcode::atomic_fa) return true;
  if ((h.flags & packet_last) == 0) return h.payload == mtu;
  return h.payload <= mtu && ((h.flags & packet_first) != 0 || h.payload != 0);
}

// Packets for processes whose ring has no room yet: the first one for a process waits
// until that has noticed. In order, and not for long.
struct Waiting {
  u16 slot;
  u64 since_ns;
  PacketHeader header;
  std::vector<u8> bytes;
};
constexpr size_t most_waiting = 256;
constexpr u64 longest_wait_ns = 100'000'000;

std::deque<Waiting> &waiting() {
  static auto &list = *new std::deque<Waiting>;
  return list;
}

// False: it has to wait.
bool put(u16 slot, const PacketHeader &header, const u8 *bytes) {
  Fabric &fabric = *process().fabric;
  Fabric::Slot room;
  const auto reserved = fabric.reserve(slot, header.payload, room);
  if (reserved == Fabric::Reserve::full) return false;
  if (reserved == Fabric::Reserve::no_peer) return true;  // as lost as by hardware
  *room.header = header;
  std::memcpy(room.payload, bytes, header.payload);
  (void)fabric.commit(slot, room);
  return true;
}

void pass_on(u16 slot, const RoceDatagram &d, u64 now_ns) {
  PacketHeader h{};
  h.kind = PacketKind::roce;
  h.payload = d.size;
  h.udp_sport = d.source_port;
  h.traffic_class = d.traffic_class;
  h.hop_limit = d.hop_limit;
  std::memcpy(h.sgid, d.sgid, 16);
  std::memcpy(h.dgid, d.dgid, 16);
  auto &list = waiting();
  if (list.empty() && put(slot, h, d.bytes)) return;
  if (list.size() < most_waiting)
    list.push_back({slot, now_ns, h, std::vector<u8>(d.bytes, d.bytes + d.size)});
}

void pass_on_waiting(u64 now_ns) {
  auto &list = waiting();
  while (!list.empty()) {
    const Waiting &w = list.front();
    if (!put(w.slot, w.header, w.bytes.data()) && now_ns < w.since_ns + longest_wait_ns) return;
    list.pop_front();
  }
}

bool accept(const RoceDatagram &d, Arrival &a) {
  if (!icrc_holds(d) || !unpack(d, a)) {
    SOFTHCA_LOG(debug, "wire udp: dropped a %u-byte packet: bad ICRC or not RoCE v2", d.size);
    return false;
  }
  const auto it = process().qps.find(a.header.dst_qpn);
  return it != process().qps.end() && arrival_fits(*it->second, a.header);
}

}  // namespace

bool udp_open;

bool udp_start(std::string &error) {
  if (config().wire != Wire::udp) return true;
  std::vector<std::array<u8, 4>> addresses;
  for (const DeviceConfig &device : config().devices)
    for (const PortConfig &port : device.ports) {
      std::array<u8, 4> ip{};
      if (port.active && parse_ipv4(port.ipv4, ip)) addresses.push_back(ip);
    }
  g_fabric = process().fabric;
  g_link = UdpLink::open(addresses, config().udp_port, arrived, error);
  udp_open = g_link != nullptr;
  return udp_open;
}

void udp_forget(bool forked) {
  g_fabric = nullptr;
  // Its thread runs on in the process that started it.
  if (g_link != nullptr && forked) g_link->forget();
  g_link = nullptr;
  udp_open = false;
  waiting().clear();
}

bool leaves_host(const u8 *dgid) {
  static constexpr u8 none[16] = {};
  if (std::equal(none, none + 16, dgid)) return false;
  for (const Device &device : process().devices)
    for (const auto &table : device.gids)
      for (const GidEntry &entry : table)
        if (entry.valid && std::equal(entry.gid.begin(), entry.gid.end(), dgid)) return false;
  return true;
}

Sent udp_transmit(const PacketHeader &header, const SpanList *spans, u64 offset, const u8 *bytes) {
  if (!has_form(header)) return Sent::lost;
  static u8 gathered[burst_bytes];
  if (spans != nullptr && header.payload != 0) {
    if (!read_spans(*spans, offset, gathered, header.payload)) return Sent::fault;
    bytes = gathered;
  }
  PacketHeader h = header;
  h.udp_sport = config().udp_port;
  const PacketTrain train = packets_of(h, bytes);
  std::vector<iovec> packets;
  constexpr u32 in_front = ether_bytes + ipv4_bytes + udp_bytes;
  for (const Packet &p : train.packets)
    packets.push_back({const_cast<u8 *>(p.data()) + in_front, p.size() - in_front});
  switch (g_link->send(h.sgid, h.dgid, h.traffic_class, h.hop_limit, packets.data(),
                       static_cast<u32>(packets.size()))) {
    case UdpLink::Sent::full: return Sent::full;
    case UdpLink::Sent::lost: return Sent::lost;
    case UdpLink::Sent::yes: break;
  }
  if (capturing()) [[unlikely]]
    capture(h, bytes);
  return Sent::yes;
}

bool udp_receive(u64 now_ns, Arrival &a) {
  pass_on_waiting(now_ns);
  RoceDatagram d;
  while (g_link->receive(now_ns, d)) {
    if (d.size < bth_bytes) continue;
    const u16 slot = slot_of_qpn(load_be32(d.bytes + 4));
    if (slot != process().fabric->slot()) pass_on(slot, d, now_ns);
    else if (accept(d, a)) return true;
  }
  return false;
}

bool udp_busy() { return !waiting().empty(); }

bool udp_passed_on(const PacketHeader &h, const u8 *payload, Arrival &a) {
  if (!udp_open) return false;
  RoceDatagram d;
  std::memcpy(d.sgid, h.sgid, 16);
  std::memcpy(d.dgid, h.dgid, 16);
  d.source_port = h.udp_sport;
  d.traffic_class = h.traffic_class;
  d.hop_limit = h.hop_limit;
  d.bytes = payload;
  d.size = h.payload;
  return accept(d, a);
}

bool arrival_fits(const Qp &qp, PacketHeader &h) {
  if (h.service != service_of(qp)) return false;
  if (h.kind == PacketKind::datagram) return true;
  const AddressVector &av = qp.attr.av;
  if (!av.is_global || std::memcmp(av.dgid, h.sgid, 16) != 0) return false;
  h.src_qpn = qp.attr.dest_qpn;
  if (h.kind != PacketKind::request) return qp.send && place_response(qp, h);
  const u32 mtu = path_mtu_bytes(qp);
  if (!length_fits(h, mtu)) h.opcode = static_cast<u8>(WqeOpcode::nop);
  if (static_cast<WqeOpcode>(h.opcode) == WqeOpcode::rdma_read)
    h.npsn = std::max((h.message_bytes + mtu - 1) / mtu, 1u);
  return true;
}

}  // namespace softhca
