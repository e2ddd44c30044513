// Cross-channel: a master queue pair waits for completions of any queue, and releases what managed
// (slave) queues hold. Private to the device model.
#pragma once

#include "base/prm.h"
#include "base/types.h"

namespace softhca {

struct Cq;
struct Qp;

// Whether the WAIT has to stay where it is: its completion queue has yet to write as many entries
// since its creation as the index says. The queue pair runs again when it writes one. What no WAIT
// may ask for does not wait: execute_cross_channel() refuses it.
bool waits_for_completions(Qp &, const u8 *wqe, u32 ds);
// Releases what the WQE names, for SEND_EN and RECV_EN. An index that is not ahead of what has been
// released changes nothing, and neither does a queue pair that names its own receives, as Mellanox's
// tests of CORE-Direct expect of cards. Its own sends it does release, which the chains of RedN
// (NSDI 2022) need and have on ConnectX-5.
Syndrome execute_cross_channel(const Qp &, WqeOpcode, const u8 *wqe, u32 ds);

// The completion queue has written an entry, or ends.
void wake_waiting(Cq &);

}  // namespace softhca
