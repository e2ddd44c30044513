#include "uverbs/psv.h"

#include <rdma/mlx5_user_ioctl_cmds.h>

#include <memory>

#include "model/signature.h"
#include "uverbs/dispatch.h"

namespace softhca::uverbs {

namespace {

constexpr u32 max_psvs = 4;  // of a command
constexpr u32 first_index_at = 16;

struct PsvObject : DevxObject {
  explicit PsvObject(File &f) : DevxObject(f) {}
  ~PsvObject() override {
    if (inherited()) return;
    for (const u32 index : indices) psvs().destroy(index);
  }
  std::vector<u32> indices;
};

}  // namespace

int psv_create(File &file, Attrs &attrs, Command &c) {
  const u32 count = c.in[8] >> 4, pdn = load_be32(c.in.data() + 8) & 0xffffff;
  if (count == 0 || count > max_psvs) return reply(attrs, c, Status::bad_param);
  if (c.out.size() < first_index_at + 4 * count) return EINVAL;
  auto object = std::make_unique<PsvObject>(file);
  for (u32 i = 0; i < count; ++i) {
    object->indices.push_back(psvs().create(pdn));
    store_be32(c.out.data() + first_index_at + 4 * i, object->indices.back());
  }
  if (const int error = reply(attrs, c, Status::ok); error != 0) return error;
  return commit(file, attrs, MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, std::move(object));
}

}  // namespace softhca::uverbs
