#include "uverbs/general_object.h"

#include <rdma/mlx5_user_ioctl_cmds.h>

#include <memory>

#include "uverbs/dispatch.h"

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

}  // namespace

int general_object_create(File &file, Attrs &attrs, Command &c) {
  switch (load_be16(c.in.data() + object_type_at)) {
    case object_type_reserved_qpn:
      if (file.caps().reserved_qpns) return create_reserved_qpns(file, attrs, c);
      break;
    default: break;
  }
  return reply(attrs, c, Status::bad_op);
}

}  // namespace softhca::uverbs
