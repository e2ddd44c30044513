// Decodes a RoCE v2 packet from another host into a record of the wire: the reverse of
// packets.h. One packet is one record.
#pragma once

#include "base/types.h"
#include "wire/packet.h"
#include "wire/udp_link.h"

namespace softhca {

// Whether the ICRC is right. It covers the IPv4 identification, which sockets do not show:
// every value is accepted. Thus 16 of the 32 bits are checked, or all of them if the
// identification is 0.
bool icrc_holds(const RoceDatagram &);

struct Arrival {
  PacketHeader header{};
  const u8 *payload = nullptr;  // in the datagram, or `value`
  u8 value[8] = {};             // the original value of an atomic
  Arrival() = default;
  Arrival(const Arrival &) = delete;
  Arrival &operator=(const Arrival &) = delete;
};

// The length of a SEND of several packets, which its first one does not have.
constexpr u32 unknown_length = ~0u;

// Uses the packet alone, without checking the ICRC or the queue pair. False for lengths,
// opcodes, versions and partitions that no queue pair accepts. Packets of connections do
// not name their sender, and numbers that depend on the path MTU are those of
// a single packet: see arrival_fits() in udp_wire.h.
bool unpack(const RoceDatagram &, Arrival &);

}  // namespace softhca
