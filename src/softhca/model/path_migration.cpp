#include "model/path_migration.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "model/device.h"
#include "model/requester.h"

namespace softhca {

namespace {

bool arrived_at(const Device &device, u8 port, const PacketHeader &h) {
  if (!device.up(port)) return false;
  if (!device.ethernet(port)) return h.dst_lid == device.port(port).lid;
  for (const GidEntry &entry : device.gids[port - 1u])
    if (entry.valid && std::memcmp(entry.gid.data(), h.dgid, 16) == 0) return true;
  return false;
}

bool by_alternate_path(const Qp &qp, const PacketHeader &h) {
  return arrived_at(*qp.device, qp.attr.alt_port, h) && h.src_lid == qp.attr.alt_av.dlid;
}

}  // namespace

void set_migration(Qp &qp, PathState to) {
  qp.migration_refused = false;
  if (to == PathState::migrated && migrate(qp)) return;
  qp.attr.path_state = to;
}

bool migrate(Qp &qp) {
  QpAttributes &a = qp.attr;
  if (a.path_state != PathState::armed) return false;
  std::swap(a.av, a.alt_av);
  std::swap(a.port, a.alt_port);
  std::swap(a.pkey_index, a.alt_pkey_index);
  std::swap(a.timeout, a.alt_timeout);
  a.path_state = PathState::migrated;
  SOFTHCA_LOG(debug, "QP %#x: moves to port %u, LID %u", qp.qpn, a.port, a.av.dlid);
  send_by_new_path(qp);
  qp_event(qp, EventType::path_mig);
  return true;
}

bool takes_path(Qp &qp, const PacketHeader &h) {
  const u8 port = std::max<u8>(qp.attr.port, 1);
  if (qp.attr.path_state == PathState::migrated || h.migration_asked) {
    if (!arrived_at(*qp.device, port, h)) return false;
    if (qp.attr.path_state == PathState::rearm) qp.attr.path_state = PathState::armed;
    return true;
  }
  if (qp.attr.path_state == PathState::rearm) return arrived_at(*qp.device, port, h);
  // The other end has moved.
  if (by_alternate_path(qp, h)) return migrate(qp);
  if (!std::exchange(qp.migration_refused, true)) qp_event(qp, EventType::path_mig_err);
  return false;
}

void set_port(u32 port, bool up) {
  for (Device &device : process().devices)
    if (port <= device.port_count()) device.ports_up[port - 1] = up;
  if (up) return;
  for (const auto &[number, qp] : process().qps)
    if (qp->attr.port == port) (void)migrate(*qp);
}

}  // namespace softhca
