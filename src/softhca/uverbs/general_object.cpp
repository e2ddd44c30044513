#include "uverbs/general_object.h"

#include <rdma/mlx5_user_ioctl_cmds.h>

#include <memory>

#include "uverbs/dispatch.h"
#include "uverbs/schedule_object.h"

namespace softhca::uverbs {

namespace {

constexpr u32 object_type_at = 6, object_id_at = 8, log_range_at = 12;

// mlx5dv_reserved_qpn_alloc: each connection that one DC target serves needs a
// number of its own for the connection manager, and no QP may have it.
struct ReservedQpns : DevxObject {
  ReservedQpns(File &f, u32 number) : DevxObject(f), first(number) {}
  ~ReservedQpns() override {
    if (!inherited()) qpns_release(first);
  }
  u32 first;
};

int create_reserved_qpns(File &file, Attrs &attrs, Command &c) {
  if ((c.in[log_range_at] & 0x1f) != log_reserved_qpns) return reply(attrs, c, Status::bad_param);
  u32 first;
  if (!qpns_reserve(first)) return reply(attrs, c, Status::no_resources);
  auto object = std::make_unique<ReservedQpns>(file, first);
  store_be32(c.out.data() + object_id_at, first);
  if (const int error = reply(attrs, c, Status::ok); error != 0) return error;
  return commit(file, attrs, MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, std::move(object));
}

// mlx5dv_map_ah_to_qp: whose congestion control datagrams to an address are to follow. A
// hint; there is no congestion on this wire. It outlives the QP that it names.
int create_av_qp_mapping(File &file, Attrs &attrs, Command &c) {
  constexpr u32 qpn_at = 16 + 12, end = 16 + 48;
  if (c.in.size() < end) return EINVAL;
  const u32 qpn = load_be32(c.in.data() + qpn_at);
  if (qpn == 0 || qpn > 0xffffff) return reply(attrs, c, Status::bad_param);
  static u32 next = 1;
  store_be32(c.out.data() + object_id_at, next++);
  if (const int error = reply(attrs, c, Status::ok); error != 0) return error;
  return commit(file, attrs, MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE,
                std::make_unique<DevxObject>(file));
}

}  // namespace

int general_object_create(File &file, Attrs &attrs, Command &c) {
  switch (load_be16(c.in.data() + object_type_at)) {
    case object_type_reserved_qpn:
      if (file.caps().reserved_qpns) return create_reserved_qpns(file, attrs, c);
      break;
    case object_type_scheduling_element:
      if (file.caps().qp_scheduling) return schedule_create(file, attrs, c);
      break;
    case object_type_av_qp_mapping:
      if (file.caps().av_qp_mapping) return create_av_qp_mapping(file, attrs, c);
      break;
    default: break;
  }
  return reply(attrs, c, Status::bad_op);
}

}  // namespace softhca::uverbs
