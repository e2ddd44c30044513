// A RoCE v2 packet as the record that it stands for: the reverse of packets.h,
// for what comes from strangers. One packet is one record.
#pragma once

#include "base/types.h"
#include "wire/packet.h"
#include "wire/udp_link.h"

namespace softhca {

// Whether the ICRC is right. IPv4 headers count with "do not fragment" and any
// identification, which sockets do not show: 16 bits of the 32 are left then,
// all of them where the identification is 0.
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

// What the packet alone says: neither the ICRC nor anything of the queue pair is
// looked at. False for what no queue pair takes: lengths, opcodes, versions and
// partitions that are none. Packets of connections do not name their sender, and
// the numbers that depend on the path MTU are those of a single packet: see
// arrival_fits() in udp_wire.h.
bool unpack(const RoceDatagram &, Arrival &);

}  // namespace softhca
