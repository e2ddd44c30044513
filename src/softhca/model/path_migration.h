// Automatic path migration of connected queue pairs on InfiniBand (InfiniBand specification, volume 1,
// 17.2.8). A second path is loaded beside the first; both ends ask for migration (REARM) and are
// armed by the first packet from which they learn that the other one has asked, too. The MigReq bit
// of the packets of an end that has moved takes the other one along.
#pragma once

#include "model/qp.h"
#include "wire/packet.h"

namespace softhca {

// What software may ask for: REARM, or MIGRATED, which moves a QP that is armed.
void set_migration(Qp &, PathState);
// Moves the QP to its alternate path, which changes places with the one it leaves. False when it
// is not armed.
bool migrate(Qp &);
// Whether a packet to this QP arrived by a path that it has. The packet may arm the QP or move it.
bool takes_path(Qp &, const PacketHeader &);
// A port of every device of the process comes up or goes down: what is armed leaves it.
void set_port(u32 port, bool up);

}  // namespace softhca
