// RoCE v2 packets through sockets of the kernel: what leaves a host with
// `wire = "udp"`. Knows addresses and bytes, nothing of what they mean.
//
// One socket for each address, bound to it and to the port that both sides use.
// Processes of one host share it; the kernel decides who gets a packet, and
// whoever gets it passes it on (udp_wire.h). A thread waits for arrivals and says
// that there are some; reading them is up to whoever drives the device.
//
// The device lock is held, except by that thread.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "base/types.h"

struct iovec;

namespace softhca {

// A packet as a UDP socket shows it. The rest of the network header is not known.
struct RoceDatagram {
  u8 sgid[16] = {}, dgid[16] = {};  // ::ffff:a.b.c.d for IPv4
  u16 source_port = 0;
  u8 traffic_class = 0, hop_limit = 0;
  const u8 *bytes = nullptr;  // from the BTH to the ICRC
  u32 size = 0;
};

class UdpLink {
 public:
  enum class Sent : u8 { yes, full, lost };

  // nullptr and what failed. `arrived` is called by the thread.
  static UdpLink *open(const std::vector<std::array<u8, 4>> &addresses, u16 port, void (*arrived)(),
                       std::string &error);
  // In a forked child: the parent's sockets are the parent's.
  void forget();

  // Sends `count` packets (BTH to ICRC) from one address to another, with "do not
  // fragment" and the identification 0, as their ICRC has it. full: not even the
  // first one; what does not fit behind it is lost, as on any wire.
  Sent send(const u8 *sgid, const u8 *dgid, u8 traffic_class, u8 hop_limit, const iovec *packets,
            u32 count);

  // The next packet that has arrived, valid until the next call. The time is
  // that of the caller: a socket that was found empty is not asked at once again.
  bool receive(u64 now_ns, RoceDatagram &out);

 private:
  struct State;
  explicit UdpLink(State *s) : s_(s) {}
  State *s_;
};

}  // namespace softhca
