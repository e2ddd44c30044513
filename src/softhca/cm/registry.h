// What the connection managers of a fabric must agree on across processes: the
// addresses of its hosts, and who holds or listens on which port of a port
// space. On a real host that is kernel memory; here it is one file in the
// directory of the fabric, a table of fixed records changed under a file lock.
//
// A record names the process that made it by slot and incarnation (the inode
// of the slot's file): those of dead processes are dropped where they matter.
//
// All functions are called with the device lock held.
#pragma once

#include "base/types.h"
#include "cm/cm_address.h"
#include "cm/station.h"

namespace softhca::cm {

// A process of the fabric. Slots are used again, incarnations are not.
struct Party {
  u16 slot = 0;
  u64 incarnation = 0;
  bool operator==(const Party &) const = default;
};

// This process; incarnation 0 when it has not joined.
Party self();
// Whether that process lives. A few system calls.
bool alive(const Party &);

// Announces the ports of this host. 0 or errno.
int announce();
// A port that a living process announced with this IP address or GID. An
// address of another link layer than `like` is not found.
bool find_station(const Ip &, const Station &like, Station &out);

struct Binding {
  u32 owner = 0;  // number of the id at its process
  u16 port_space = 0;
  u16 port = 0;              // 0: any free one
  Address address;           // its port is not looked at
  bool reuse = false;        // REUSEADDR
  bool family_only = false;  // AFONLY
};

// Reserves the port on this host (cma_get_port) and fills it in. 0, EADDRINUSE,
// EADDRNOTAVAIL, or an errno of the file.
int bind_port(Binding &);
// Makes a reserved port a listening one (cma_bind_listen).
int listen_port(const Binding &);
void unbind_port(const Binding &);

struct Listener {
  Party party;
  u32 owner = 0;
};
// Finds the listener on `host` for connections to this address and service. Native
// InfiniBand requests reach only listeners of that family.
bool find_listener(u16 host, u64 service, const Address &to, Listener &out);

// The rule behind: whether a listener takes a request to `to`.
bool listener_takes(const Address &listening, bool family_only, const Address &to);

// In a forked child: it is another process.
void registry_forked();

}  // namespace softhca::cm
