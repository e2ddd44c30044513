// Multicast groups of UD QPs (core/verbs.c ib_attach_mcast).
#include <rdma/ib_user_verbs.h>

#include <algorithm>

#include "base/gid.h"
#include "uverbs/dispatch.h"

namespace softhca::uverbs {

namespace {

constexpr u16 first_multicast_lid = 0xc000, permissive_lid = 0xffff;

bool multicast_gid(const Gid &gid) {
  if (gid[0] == 0xff) return true;
  return is_ipv4_gid(gid.data()) && gid[12] >= 224 && gid[12] < 240;
}

// On Ethernet the LID is ignored; a QP that knows no port yet is given the
// benefit of the doubt if any port is Ethernet.
bool valid_lid(const QpObject &object, u16 lid) {
  const Device &device = object.file.device();
  if (lid >= first_multicast_lid && lid != permissive_lid) return true;
  if (object.qp->state >= QpState::init) return device.ethernet(object.qp->attr.port);
  for (u32 port = 1; port <= device.port_count(); ++port)
    if (device.ethernet(port)) return true;
  return false;
}

// Both commands have one layout.
int read_group(File &file, Attrs &attrs, QpObject *&object, QpObject::Group &group) {
  static_assert(sizeof(ib_uverbs_attach_mcast) == sizeof(ib_uverbs_detach_mcast));
  ib_uverbs_attach_mcast req{};
  if (const int error = request(attrs, req); error != 0) return error;
  int error = 0;
  object = file.objects.get<QpObject>(req.qp_handle, error);
  if (object == nullptr) return error;
  std::copy(std::begin(req.gid), std::end(req.gid), group.gid.begin());
  group.mlid = req.mlid;
  return 0;
}

int attach(File &file, Attrs &attrs) {
  QpObject *object = nullptr;
  QpObject::Group group{};
  if (const int error = read_group(file, attrs, object, group); error != 0) return error;
  if (std::find(object->groups.begin(), object->groups.end(), group) != object->groups.end())
    return 0;
  if (object->qp->type != QpType::ud || !multicast_gid(group.gid) ||
      !valid_lid(*object, group.mlid))
    return EINVAL;
  if (object->groups.size() >= file.caps().max_mcast_attach) return ENOMEM;
  object->join(group);
  return 0;
}

int detach(File &file, Attrs &attrs) {
  QpObject *object = nullptr;
  QpObject::Group group{};
  if (const int error = read_group(file, attrs, object, group); error != 0) return error;
  return object->leave(group) ? 0 : EINVAL;
}

constexpr WriteCommand commands[] = {
    {IB_USER_VERBS_CMD_ATTACH_MCAST, "WRITE/ATTACH_MCAST", sizeof(ib_uverbs_attach_mcast), 0,
     attach},
    {IB_USER_VERBS_CMD_DETACH_MCAST, "WRITE/DETACH_MCAST", sizeof(ib_uverbs_detach_mcast), 0,
     detach},
};

}  // namespace

constinit const Family mcast_family = {{}, commands};

}  // namespace softhca::uverbs
