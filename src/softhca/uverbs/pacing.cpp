#include "uverbs/pacing.h"

#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include <array>
#include <map>

#include "firmware/hca_caps.h"
#include "uverbs/dispatch.h"

namespace softhca::uverbs {

namespace {

constexpr u16 table_entries = firmware::rate_entries;

struct Entry {
  Rate rate;
  bool dedicated = false;
  u32 users = 0;
};

Entry *table_of(u32 device) {
  static auto &tables = *new std::map<u32, std::array<Entry, table_entries>>;
  return tables[device].data();
}

struct PacingObject : Object {
  static constexpr ObjectClass kind = ObjectClass::pacing;
  PacingObject(File &f, u16 i) : Object(f, kind), index(i) {}
  ~PacingObject() override { pacing_release(file.device_number, index); }
  u16 index;
};

// set_pp_rate_limit_context
constexpr u32 context_bytes = 48, burst_at = 4, typical_at = 10;

int alloc(File &file, Attrs &attrs) {
  if (!file.devx) return EINVAL;
  if (!file.caps().packet_pacing) return EOPNOTSUPP;
  std::vector<u8> context;
  if (const int error = attrs.bytes(MLX5_IB_ATTR_PP_OBJ_ALLOC_CTX, context); error != 0)
    return error;
  if (context.size() > context_bytes) return EINVAL;
  context.resize(context_bytes);
  u32 flags = 0;
  if (const int error = attrs.flags(MLX5_IB_ATTR_PP_OBJ_ALLOC_FLAGS,
                                    MLX5_IB_UAPI_PP_ALLOC_FLAGS_DEDICATED_INDEX, flags);
      error != 0)
    return error;
  const Rate rate{load_be32(context.data()), load_be32(context.data() + burst_at),
                  load_be16(context.data() + typical_at)};
  u16 index = 0;
  if (const int error = pacing_acquire(file.device_number, rate, flags != 0, index); error != 0)
    return error;
  auto object = std::make_unique<PacingObject>(file, index);
  if (const int error = attrs.out(MLX5_IB_ATTR_PP_OBJ_ALLOC_INDEX, index); error != 0) return error;
  return commit(file, attrs, MLX5_IB_ATTR_PP_OBJ_ALLOC_HANDLE, std::move(object));
}

int free_entry(File &file, Attrs &attrs) {
  return destroy(file, attrs, MLX5_IB_ATTR_PP_OBJ_DESTROY_HANDLE);
}

constexpr AttrSpec alloc_specs[] = {
    created(MLX5_IB_ATTR_PP_OBJ_ALLOC_HANDLE),
    in_bytes(MLX5_IB_ATTR_PP_OBJ_ALLOC_CTX, 1),
    constant(MLX5_IB_ATTR_PP_OBJ_ALLOC_FLAGS),
    out<u16>(MLX5_IB_ATTR_PP_OBJ_ALLOC_INDEX),
};
constexpr AttrSpec destroy_specs[] = {
    destroyed(MLX5_IB_ATTR_PP_OBJ_DESTROY_HANDLE, ObjectClass::pacing)};
constexpr Method methods[] = {
    {MLX5_IB_OBJECT_PP, MLX5_IB_METHOD_PP_OBJ_ALLOC, "PP/ALLOC", alloc, alloc_specs},
    {MLX5_IB_OBJECT_PP, MLX5_IB_METHOD_PP_OBJ_DESTROY, "PP/DESTROY", free_entry, destroy_specs},
};

}  // namespace

int pacing_acquire(u32 device, const Rate &rate, bool dedicated, u16 &index) {
  const Capabilities &caps = process().devices[device].caps;
  if (rate.kbps < caps.min_rate_kbps || rate.kbps > caps.max_rate_kbps) return EINVAL;
  Entry *table = table_of(device);
  u16 found = 0;
  for (u16 i = table_entries - 1; i != 0; --i) {
    const Entry &e = table[i];
    if (e.users == 0) {
      found = i;
    } else if (!dedicated && !e.dedicated && e.rate == rate) {
      found = i;
      break;
    }
  }
  if (found == 0) return ENOSPC;
  Entry &e = table[found];
  if (e.users++ == 0) {
    e.rate = rate;
    e.dedicated = dedicated;
  }
  index = found;
  return 0;
}

void pacing_release(u32 device, u16 index) {
  if (index != 0) --table_of(device)[index].users;
}

constinit const Family pacing_family = {methods, {}};

}  // namespace softhca::uverbs
