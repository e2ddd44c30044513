// SOFTHCA_PCAP: what this process puts on the wire, as packets in a file that
// Wireshark reads. Several processes may append to one file.
#pragma once

#include "base/types.h"
#include "wire/packet.h"

namespace softhca {

// Whether the configuration asks for it. Cheap.
bool capturing();
// Appends the packets of a record that was sent. A file that cannot be written
// is said once and not tried again. Device lock held.
void capture(const PacketHeader &, const u8 *payload);

}  // namespace softhca
