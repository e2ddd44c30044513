// Umems (mlx5/devx.c): registration, and parts of them for queues.
#include "uverbs/devx_umem.h"

#include <rdma/mlx5_user_ioctl_cmds.h>

#include <algorithm>

#include "model/memory.h"
#include "uverbs/dispatch.h"
#include "uverbs/mr.h"
#include "uverbs/privilege.h"
#include "uverbs/queue.h"

namespace softhca::uverbs {

namespace {

constexpr u32 log_page_bytes = 12;  // also of the adapter
constexpr u32 allowed_access =
    access_local_write | access_remote_write | access_remote_read | access_relaxed_ordering;

struct UmemObject : Object {
  static constexpr ObjectClass kind = ObjectClass::umem;
  explicit UmemObject(File &f) : Object(f, kind) {}
  ~UmemObject() override {
    file.umems.remove(umem.id, this);
    unpin(pinned);
  }
  Umem umem;
  u64 pinned = 0;  // bytes counted against RLIMIT_MEMLOCK
};

// Whether there is a page size that the program allows and the memory can have: the
// pages must be able to hold it, and pages larger than the processor's must be its
// whole extent. Kernel: devx_umem_find_best_pgsize.
bool page_size_exists(const Umem &u, u64 allowed) {
  u32 log_length = log_page_bytes;
  while (log_length < 63 && u64{1} << log_length < u.length) ++log_length;
  const u64 largest = log_length == 63 ? ~u64{0} : (u64{2} << log_length) - 1;
  allowed &= largest & ~(u64{page_size} - 1);
  if (allowed == 0) return false;
  const u64 smallest = allowed & -allowed;
  return smallest == page_size || (u.address | u.length) % smallest == 0;
}

// What the umem spans, and whether it is there (ib_umem_get).
int take_memory(UmemObject &o) {
  const u64 end = o.umem.address + o.umem.length;
  if (end < o.umem.address || end + page_size - 1 < end) return EINVAL;
  const u64 bytes = align_up(end, page_size) - (o.umem.address & ~u64{page_size - 1});
  if (bytes == 0 || o.umem.length == 0) return EINVAL;
  if (const int error = pin(bytes); error != 0) return error;
  o.pinned = bytes;
  return probe(o.umem.address, o.umem.length, o.umem.writable);
}

int umem_reg(File &file, Attrs &attrs) {
  if (!file.devx) return EINVAL;
  auto object = std::make_unique<UmemObject>(file);
  Umem &u = object->umem;
  u32 access = 0;
  u.address = attrs.value<u64>(MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR);
  u.length = attrs.value<u64>(MLX5_IB_ATTR_DEVX_UMEM_REG_LEN);
  if (const int error = attrs.flags(MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS, allowed_access, access);
      error != 0)
    return error;
  if (const int error = check_mr_access(file, access); error != 0) return error;
  u.writable = (access & (access_local_write | access_remote_write)) != 0;
  if (const int error = take_memory(*object); error != 0) return error;
  u64 allowed = ~u64{0};
  attrs.constant(MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP, allowed);
  if (!page_size_exists(u, allowed)) return EINVAL;

  static u32 next = 1;
  u.id = next++;
  file.umems.add(u.id, object.get(), &u);
  if (const int error = attrs.out(MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, u.id); error != 0)
    return error;
  return commit(file, attrs, MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE, std::move(object));
}

int umem_dereg(File &file, Attrs &attrs) {
  return destroy(file, attrs, MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE);
}

constexpr AttrSpec reg_specs[] = {
    created(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE),
    in<u64>(MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR),
    in<u64>(MLX5_IB_ATTR_DEVX_UMEM_REG_LEN),
    flags(MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS),
    constant(MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP).optional(),
    out<u32>(MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID),
};
constexpr AttrSpec dereg_specs[] = {
    destroyed(MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE, ObjectClass::umem)};
constexpr Method methods[] = {
    {MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_REG, "DEVX_UMEM/REG", umem_reg, reg_specs},
    {MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_DEREG, "DEVX_UMEM/DEREG", umem_dereg,
     dereg_specs},
};

}  // namespace

constinit const Family umem_family = {methods, {}};

Status claim_umem(const File &file, u32 id, u64 offset, u64 bytes, UmemUse use, Hold &user,
                  u8 *&at) {
  const auto found = file.umems.find(id);
  if (!found) return Status::bad_resource;
  const Umem &u = *found.thing;
  const u64 room = align_up(u.address + u.length, page_size) - u.address;
  if (offset > room || bytes > room - offset) return Status::bad_param;
  const bool writes = use == UmemUse::write;
  if ((writes && !u.writable) || probe(u.address + offset, bytes, writes) != 0)
    return Status::bad_param;
  user.reset(found.owner);
  at = reinterpret_cast<u8 *>(u.address + offset);
  return Status::ok;
}

Status claim_umem_doorbell(const File &file, u32 id, u64 offset, Hold &user, u32 *&record) {
  constexpr u64 record_bytes = 8;
  u8 *at = nullptr;
  if (const Status s = claim_umem(file, id, offset, record_bytes, UmemUse::read, user, at);
      s != Status::ok)
    return s;
  if (reinterpret_cast<u64>(at) % record_bytes != 0) return Status::bad_param;
  // On hardware it is only read; the mark of a completion queue that is not armed is ours.
  if (claim_buffer(reinterpret_cast<u64>(at), record_bytes) != 0) return Status::bad_param;
  record = reinterpret_cast<u32 *>(at);
  return Status::ok;
}

}  // namespace softhca::uverbs
