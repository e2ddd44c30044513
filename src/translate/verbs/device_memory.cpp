#include "translate/verbs/device_memory.h"

#include <infiniband/mlx5dv.h>

#include <cstdint>
#include <cstring>

#include "base/keep_errno.h"
#include "base/owned.h"
#include "base/real.h"
#include "trace/diagnose.h"

namespace ibvexp::translate {

namespace {

constexpr EntryId allocating = EntryId::ibv_exp_alloc_dm;
constexpr EntryId freeing = EntryId::ibv_exp_free_dm;
constexpr EntryId copying = EntryId::ibv_exp_memcpy_dm;

std::uint32_t handle_of(const ibv_dm *dm) {
  if (shows_memory_handle()) return dm->handle;
  // Older releases keep it behind the public structure (verbs_dm of their driver.h).
  std::uint32_t handle;
  std::memcpy(&handle, dm + 1, sizeof handle);
  return handle;
}

void *mapping_of(ibv_dm *dm) {
  return mlx5dv_is_supported(dm->context->device) ? facts_of(dm).buf : nullptr;
}

}  // namespace

Result<ibv_exp_dm *> alloc_dm(ContextState &state, ibv_context *context,
                              ibv_exp_alloc_dm_attr *attr) {
  if (attr == nullptr) return invalid(allocating, "attributes", 0, "must not be null");
  if (attr->comp_mask != 0)
    return invalid(allocating, "comp_mask", attr->comp_mask, "unknown bits");
  if (attr->length == 0) {
    static_cast<void>(invalid(allocating, "length", 0, "must not be 0"));
    return Error{ENOMEM};  // the legacy provider's number
  }

  auto made = std::make_unique<DeviceMemory>();
  ibv_alloc_dm_attr modern{};
  modern.length = attr->length;
  const KeepErrno keep;
  Owned<ibv_dm, ibv_free_dm> dm(ibv_alloc_dm(context, &modern));
  if (!dm) return keep.reason();
  made->dm = dm.get();
  made->handle.context = context;
  made->handle.handle = handle_of(dm.get());
  made->length = attr->length;
  made->mapped = mapping_of(dm.get());

  ibv_exp_dm *handle = &state.device_memory.add(std::move(made))->handle;
  static_cast<void>(dm.release());
  return handle;
}

Result<void> free_dm(ContextState &state, ibv_exp_dm *dm) {
  const auto gone = state.device_memory.claim(dm);
  if (!gone) return invalid(freeing, "dm", 0, "not allocated here, or freed");
  const KeepErrno keep;
  return state.device_memory.settle(gone, ibv_free_dm(gone->dm));
}

Result<void> memcpy_dm(ContextState &state, ibv_exp_dm *dm, ibv_exp_memcpy_dm_attr *attr) {
  if (attr == nullptr) return invalid(copying, "attributes", 0, "must not be null");
  if (attr->comp_mask != 0) return invalid(copying, "comp_mask", attr->comp_mask, "unknown bits");
  const DeviceMemory *whole = state.device_memory.find(dm);
  if (whole == nullptr) return invalid(copying, "dm", 0, "not allocated here, or freed");
  if (attr->host_addr == nullptr) return invalid(copying, "host_addr", 0, "must not be null");
  // libmlx5 compares the sum, which may wrap.
  if (!whole->holds(attr->dm_offset, attr->length))
    return invalid(copying, "dm_offset", attr->dm_offset,
                   "the range ends beyond the device memory");

  // Copying calls nothing that changes errno.
  switch (attr->memcpy_dir) {
    case IBV_EXP_DM_CPY_TO_DEVICE:
      return outcome(ibv_memcpy_to_dm(whole->dm, attr->dm_offset, attr->host_addr, attr->length));
    case IBV_EXP_DM_CPY_TO_HOST:
      return outcome(ibv_memcpy_from_dm(attr->host_addr, whole->dm, attr->dm_offset, attr->length));
  }
  return invalid(copying, "memcpy_dir", static_cast<std::uint32_t>(attr->memcpy_dir),
                 "must be IBV_EXP_DM_CPY_TO_DEVICE or IBV_EXP_DM_CPY_TO_HOST");
}

}  // namespace ibvexp::translate
