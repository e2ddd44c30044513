#include "model/transmit.h"

#include <vector>

#include "fault/faults.h"
#include "model/capture.h"
#include "model/counters.h"
#include "model/device.h"
#include "model/udp_wire.h"

namespace softhca {

namespace {

struct Delayed {
  u64 due_ns;
  u16 slot;
  PacketHeader header;
  std::vector<u8> payload;
};

std::vector<Delayed> &delayed() {
  static auto &list = *new std::vector<Delayed>;
  return list;
}

const char *kind_name(PacketKind k) {
  switch (k) {
    case PacketKind::request: return "REQUEST";
    case PacketKind::ack: return "ACK";
    case PacketKind::read_response: return "READ_RESPONSE";
    case PacketKind::atomic_response: return "ATOMIC_RESPONSE";
    case PacketKind::datagram: return "DATAGRAM";
    case PacketKind::ethernet: return "FRAME";
    default: return "OTHER";
  }
}

Sent send_now(u16 slot, const PacketHeader &header, const SpanList *spans, u64 offset,
              const u8 *bytes, u64 *position) {
  // Groups have their members in this host.
  if (leaves_by_udp(header.dgid) && header.dst_qpn != multicast_qpn) [[unlikely]]
    return udp_transmit(header, spans, offset, bytes);
  Fabric &fabric = *process().fabric;
  Fabric::Slot room;
  switch (fabric.reserve(slot, header.payload, room)) {
    case Fabric::Reserve::full: return Sent::full;
    case Fabric::Reserve::no_peer: return Sent::lost;
    case Fabric::Reserve::ok: break;
  }
  *room.header = header;
  room.header->src_slot = fabric.slot();
  if (header.payload != 0) {
    if (spans == nullptr) std::memcpy(room.payload, bytes, header.payload);
    else if (!read_spans(*spans, offset, room.payload, header.payload))
      return Sent::fault;  // nothing is published: the room is simply reused
  }
  if (capturing()) [[unlikely]]
    capture(header, room.payload);
  const u64 at = fabric.commit(slot, room);
  if (position != nullptr) *position = at;
  return Sent::yes;
}

}  // namespace

Sent transmit(u16 slot, const PacketHeader &header, const SpanList *spans, u64 offset,
              const u8 *bytes, u64 *position) {
  if (!faults_configured()) [[likely]]
    return send_now(slot, header, spans, offset, bytes, position);

  const PacketFault fault = fault_packet(kind_name(header.kind));
  if (fault.drop) return Sent::lost;
  if (fault.delay_ns != 0) {
    Delayed d{device_clock_ns() + fault.delay_ns, slot, header, {}};
    d.payload.resize(header.payload);
    if (header.payload != 0) {
      if (spans == nullptr) std::memcpy(d.payload.data(), bytes, header.payload);
      else if (!read_spans(*spans, offset, d.payload.data(), header.payload)) return Sent::fault;
    }
    delayed().push_back(std::move(d));
    return Sent::lost;  // on its way, but not accounted for by ring position
  }
  const Sent sent = send_now(slot, header, spans, offset, bytes, position);
  if (sent == Sent::yes && fault.duplicate)
    (void)send_now(slot, header, spans, offset, bytes, position);
  return sent;
}

Sent transmit_from(const Device &device, u16 slot, const PacketHeader &header,
                   const SpanList *spans, u64 offset, const u8 *bytes, u64 *position) {
  if (!device.up(header.port)) return Sent::lost;
  const Sent sent = transmit(slot, header, spans, offset, bytes, position);
  if (sent == Sent::yes || sent == Sent::lost) count_sent(device, header);
  return sent;
}

bool transmit_delayed(u64 now_ns) {
  auto &list = delayed();
  bool any = false;
  for (size_t i = 0; i < list.size();) {
    Delayed &d = list[i];
    if (d.due_ns > now_ns ||
        send_now(d.slot, d.header, nullptr, 0, d.payload.data(), nullptr) == Sent::full) {
      ++i;
      continue;
    }
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
    any = true;
  }
  return any;
}

}  // namespace softhca
