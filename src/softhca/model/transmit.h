// Puts one record on the wire: room in the ring, payload, injected faults.
#pragma once

#include "base/types.h"
#include "model/memory.h"
#include "wire/packet.h"

namespace softhca {

struct Device;

enum class Sent : u8 {
  yes,
  full,   // no room now
  lost,   // no receiver, or dropped by an injected fault: as on a real wire
  fault,  // the gather list could not be read
};

// Payload is header.payload bytes of `spans` from `offset`, or of `bytes` when
// spans is null. `position` receives the ring position for Fabric::consumed.
Sent transmit(u16 slot, const PacketHeader &header, const SpanList *spans, u64 offset,
              const u8 *bytes, u64 *position = nullptr);

// The same from the port of the device that the header names, which counts it: lost where it is down.
Sent transmit_from(const Device &, u16 slot, const PacketHeader &header, const SpanList *spans,
                   u64 offset, const u8 *bytes, u64 *position = nullptr);

// Sends records that an injected delay holds back. Called by the engine.
bool transmit_delayed(u64 now_ns);

}  // namespace softhca
