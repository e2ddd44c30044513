// What leaves this host with `wire = "udp"`, and what comes in. Inside a host,
// which is who has its GIDs, records go through the fabric as ever.
//
// Sent are the packets that a record stands for, and what arrives is a record
// for each packet. Many things that rings take care of are the sender's
// business here, see UdpPacing. Device lock held.
#pragma once

#include <algorithm>
#include <string>

#include "base/types.h"
#include "model/memory.h"
#include "model/transmit.h"
#include "model/unpack.h"
#include "wire/packet.h"

namespace softhca {

struct Qp;

// Opens the sockets if the configuration asks for it; false and what failed.
bool udp_start(std::string &error);
// What was started is not used any more; in a forked child it is the parent's.
void udp_forget(bool forked);

extern bool udp_open;  // by udp_start()
// Whether packets to this GID leave the host by UDP.
bool leaves_host(const u8 *dgid);
inline bool leaves_by_udp(const u8 *dgid) { return udp_open && leaves_host(dgid); }

// As transmit().
Sent udp_transmit(const PacketHeader &, const SpanList *, u64 offset, const u8 *bytes);

// The next packet for a queue pair of this process, its record complete. Packets
// for others of this host are passed on, and those that are damaged, or that name a
// queue pair that is not there or not connected to their sender, are dropped in
// silence, as by hardware.
bool udp_receive(u64 now_ns, Arrival &);
// Whether packets wait to be passed on.
bool udp_busy();
// The same of what another process has passed on.
bool udp_passed_on(const PacketHeader &, const u8 *payload, Arrival &);

// Fills in what a packet of a connection does not say, and checks what depends on the
// queue pair. A request of a wrong length becomes one that is refused; false for
// what is nothing to it. For tests.
bool arrival_fits(const Qp &, PacketHeader &);

// No ring says that a receiver is behind: what is on its way stays below what its
// socket holds. Acknowledges are asked for in the middle of messages, and a READ
// is asked for piece by piece.
struct UdpPacing {
  static constexpr u32 window_bytes = 64 * 1024;
  static constexpr u32 least_packets = 32;
  static constexpr u32 packets(u32 mtu) { return std::max(window_bytes / mtu, least_packets); }
};

}  // namespace softhca
