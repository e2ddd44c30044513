// Records of the wire as the packets that they stand for: RoCE v2 on Ethernet
// ports, native InfiniBand on others. Layouts from the InfiniBand
// specification, volume 1: chapter 9 (BTH and extended headers), 7 and 8 (LRH
// and GRH), and annex A17 (RoCE v2).
#pragma once

#include <vector>

#include "base/types.h"
#include "model/crc.h"
#include "wire/packet.h"

namespace softhca {

struct PacketTrain {
  bool ethernet = false;  // otherwise native InfiniBand, from LRH to VCRC
  std::vector<Packet> packets;
};

// Packets, and their octets from the first header to the invariant CRC (frames: without their check
// sequence).
struct Traffic {
  u64 packets = 0, octets = 0;
};

// What a record comes to on the wire; none for what has no counterpart there.
Traffic traffic_of(const PacketHeader &);

// Bytes of the packets that a record of several stands for, the last one apart.
u32 mtu_of(const PacketHeader &);

// All packets of a record, in order, with ICRC (and VCRC); none for what has no
// counterpart on a real wire. A DC record shows as one of RC: the opcodes of
// dynamic connections are not public.
PacketTrain packets_of(const PacketHeader &, const u8 *payload);

}  // namespace softhca
