// Device memory: pages of the file that the application maps, and memory
// regions on it.
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include "uverbs/dispatch.h"
#include "uverbs/mr.h"

namespace softhca::uverbs {

namespace {

constexpr u64 granule = 64;
constexpr u32 max_log_alignment = 6;  // none beyond the granule: no further cap

// First page of a free run, or dm_pages.
u32 find_room(const File &file, u32 pages) {
  u32 run = 0;
  for (u32 i = 0; i < dm_pages; ++i) {
    run = file.dm_used.test(i) ? 0 : run + 1;
    if (run == pages) return i + 1 - pages;
  }
  return dm_pages;
}

// mlx5_ib_alloc_dm and mlx5_cmd_alloc_memic.
int dm_alloc(File &file, Attrs &attrs) {
  const Capabilities &caps = file.caps();
  const u64 length = attrs.value<u64>(UVERBS_ATTR_ALLOC_DM_LENGTH);
  const u32 log_alignment = attrs.value<u32>(UVERBS_ATTR_ALLOC_DM_ALIGNMENT);
  u64 type = MLX5_IB_UAPI_DM_TYPE_MEMIC;
  attrs.constant(MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE, type);
  if (!caps.device_memory || type != MLX5_IB_UAPI_DM_TYPE_MEMIC) return EOPNOTSUPP;
  if (length == 0 || log_alignment > max_log_alignment) return EINVAL;
  if (length > caps.max_dm_bytes) return ENOMEM;
  const u64 size = align_up(length, granule);
  const u64 bytes = align_up(size, page_size);
  const u32 first = find_room(file, static_cast<u32>(bytes / page_size));
  if (first == dm_pages || file.device().dm_used + bytes > caps.max_dm_bytes) return ENOMEM;

  auto dm = std::make_unique<DmObject>(file, first, size, length);
  std::memset(dm->memory(), 0, bytes);
  const u64 start_offset = 0;
  const u16 page = static_cast<u16>(first);
  if (const int error = attrs.out(MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET, start_offset);
      error != 0)
    return error;
  if (const int error = attrs.out(MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX, page); error != 0)
    return error;
  return commit(file, attrs, UVERBS_ATTR_ALLOC_DM_HANDLE, std::move(dm));
}

int dm_free(File &file, Attrs &attrs) { return destroy(file, attrs, UVERBS_ATTR_FREE_DM_HANDLE); }

int dm_query(File &, Attrs &attrs) {
  const auto *dm = attrs.object<DmObject>(MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE);
  const u64 start_offset = 0, length = dm->length;
  const u16 page = static_cast<u16>(dm->first_page);
  if (const int error = attrs.out(MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET, start_offset);
      error != 0)
    return error;
  if (const int error = attrs.out(MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX, page); error != 0)
    return error;
  return attrs.out(MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH, length);
}

int dm_mr_reg(File &file, Attrs &attrs) {
  const u64 offset = attrs.value<u64>(UVERBS_ATTR_REG_DM_MR_OFFSET);
  const u64 length = attrs.value<u64>(UVERBS_ATTR_REG_DM_MR_LENGTH);
  u32 access = 0;
  if (const int error = attrs.flags(UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS, ~0u, access); error != 0)
    return error;
  if (const int error = check_mr_access(file, access); error != 0) return error;
  auto *dm = attrs.object<DmObject>(UVERBS_ATTR_REG_DM_MR_DM_HANDLE);
  if ((access & access_zero_based) == 0) return EINVAL;
  if (offset > dm->requested || length > dm->requested - offset) return EINVAL;
  constexpr u32 allowed = access_local_write | access_remote_write | access_remote_read |
                          access_remote_atomic | access_zero_based | access_optional_mask;
  if ((access & ~allowed) != 0) return EINVAL;

  auto mr =
      std::make_unique<MrObject>(file, attrs.object<PdObject>(UVERBS_ATTR_REG_DM_MR_PD_HANDLE), dm);
  if (!mr->key) return ENOMEM;
  mr->key->kind = Mkey::Kind::device;
  mr->key->access = access;
  mr->key->start = 0;
  mr->key->length = length;
  mr->key->host_base = reinterpret_cast<u64>(dm->memory()) + offset;
  const u32 key = mr->key->key();
  if (const int error = attrs.out(UVERBS_ATTR_REG_DM_MR_RESP_LKEY, key); error != 0) return error;
  if (const int error = attrs.out(UVERBS_ATTR_REG_DM_MR_RESP_RKEY, key); error != 0) return error;
  return commit(file, attrs, UVERBS_ATTR_REG_DM_MR_HANDLE, std::move(mr));
}

constexpr AttrSpec alloc_specs[] = {
    created(UVERBS_ATTR_ALLOC_DM_HANDLE),
    in<u64>(UVERBS_ATTR_ALLOC_DM_LENGTH),
    in<u32>(UVERBS_ATTR_ALLOC_DM_ALIGNMENT),
    out<u64>(MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET),
    out<u16>(MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX).optional(),
    constant(MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE).optional(),
};
constexpr AttrSpec free_specs[] = {destroyed(UVERBS_ATTR_FREE_DM_HANDLE, ObjectClass::dm)};
constexpr AttrSpec query_specs[] = {
    object(MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE, ObjectClass::dm),
    out<u64>(MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET),
    out<u16>(MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX),
    out<u64>(MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH),
};
constexpr AttrSpec mr_specs[] = {
    created(UVERBS_ATTR_REG_DM_MR_HANDLE),
    in<u64>(UVERBS_ATTR_REG_DM_MR_OFFSET),
    in<u64>(UVERBS_ATTR_REG_DM_MR_LENGTH),
    object(UVERBS_ATTR_REG_DM_MR_PD_HANDLE, ObjectClass::pd),
    flags(UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS),
    object(UVERBS_ATTR_REG_DM_MR_DM_HANDLE, ObjectClass::dm),
    out<u32>(UVERBS_ATTR_REG_DM_MR_RESP_LKEY),
    out<u32>(UVERBS_ATTR_REG_DM_MR_RESP_RKEY),
};
constexpr Method methods[] = {
    {UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC, "DM/ALLOC", dm_alloc, alloc_specs},
    {UVERBS_OBJECT_DM, UVERBS_METHOD_DM_FREE, "DM/FREE", dm_free, free_specs},
    {UVERBS_OBJECT_DM, MLX5_IB_METHOD_DM_QUERY, "DM/QUERY", dm_query, query_specs},
    {UVERBS_OBJECT_MR, UVERBS_METHOD_DM_MR_REG, "MR/DM_MR_REG", dm_mr_reg, mr_specs},
};

}  // namespace

constinit const Family dm_family = {methods, {}};

}  // namespace softhca::uverbs
