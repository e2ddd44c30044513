// Doorbell pages. See state.h for where they are mapped, engine/doorbells.h for
// what the device reads there.
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include "uverbs/dispatch.h"

namespace softhca::uverbs {

namespace {

constexpr u32 first_uar = 16;  // the low ones are the kernel's own
constexpr u32 max_uars = 1u << 16;

int uar_alloc(File &file, Attrs &attrs) {
  u64 type = 0;
  attrs.constant(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, type);
  if (type != MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF && type != MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC)
    return EOPNOTSUPP;
  u32 id = first_uar;
  while (file.uars.count(id) != 0)
    if (++id == max_uars) return ENOMEM;

  auto uar = std::make_unique<UarObject>(file, id);
  const u64 offset = u64{id % uar_pages} * page_size;
  const u32 length = page_size;
  if (const int error = attrs.out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, offset); error != 0)
    return error;
  if (const int error = attrs.out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, length); error != 0)
    return error;
  if (const int error = attrs.out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, id); error != 0) return error;
  return commit(file, attrs, MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, std::move(uar));
}

int uar_destroy(File &file, Attrs &attrs) {
  return destroy(file, attrs, MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE);
}

constexpr AttrSpec alloc_specs[] = {
    created(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE),
    constant(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE),
    out<u64>(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET),
    out<u32>(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH),
    out<u32>(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID),
};
constexpr AttrSpec destroy_specs[] = {
    destroyed(MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE, ObjectClass::uar)};
constexpr Method methods[] = {
    {MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC, "UAR/ALLOC", uar_alloc, alloc_specs},
    {MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY, "UAR/DESTROY", uar_destroy, destroy_specs},
};

}  // namespace

constinit const Family uar_family = {methods, {}};

}  // namespace softhca::uverbs
