#include "translate/verbs/device_memory.h"

#include "base/keep_errno.h"
#include "trace/diagnose.h"

namespace ibvexp::translate {

namespace {

constexpr EntryId allocating = EntryId::ibv_exp_alloc_dm;
constexpr EntryId freeing = EntryId::ibv_exp_free_dm;
constexpr EntryId copying = EntryId::ibv_exp_memcpy_dm;

struct Whole {
  ibv_dm *dm;  // null: not ours
  std::size_t length;
};

Whole find_whole(ContextState &state, const ibv_exp_dm *dm) {
  const MutexGuard guard(state.mutex);
  const DeviceMemory *known = state.device_memory.find(dm);
  return known != nullptr ? Whole{known->dm, known->length} : Whole{};
}

}  // namespace

ibv_dm *find_dm(ContextState &state, const ibv_exp_dm *dm) { return find_whole(state, dm).dm; }

Result<ibv_exp_dm *> alloc_dm(ibv_context *context, ibv_exp_alloc_dm_attr *attr) {
  if (attr == nullptr) return invalid(allocating, "attributes", 0, "must not be null");
  if (attr->comp_mask != 0)
    return invalid(allocating, "comp_mask", attr->comp_mask, "unknown bits");
  if (attr->length == 0) return invalid(allocating, "length", 0, "must not be 0");
  ContextState *state = find_state(context);
  if (state == nullptr) return Error{ENOTSUP};

  auto made = std::make_unique<DeviceMemory>();
  ibv_alloc_dm_attr modern{};
  modern.length = attr->length;
  KeepErrno keep;
  made->dm = ibv_alloc_dm(context, &modern);
  if (made->dm == nullptr) return keep.reason();
  made->handle.context = context;
  made->handle.handle = made->dm->handle;
  made->length = attr->length;
  ibv_dm *dm = made->dm;
  try {
    const MutexGuard guard(state->mutex);
    return &state->device_memory.add(std::move(made))->handle;
  } catch (...) {
    ibv_free_dm(dm);
    throw;
  }
}

Result<void> free_dm(ibv_exp_dm *dm) {
  ContextState *state = find_state(dm->context);
  if (state == nullptr) return Error{ENOTSUP};
  Handles<DeviceMemory>::Node gone;
  {
    // Out first: of two threads that free it one finds nothing.
    const MutexGuard guard(state->mutex);
    gone = state->device_memory.take(dm);
  }
  if (!gone) return invalid(freeing, "dm", 0, "not allocated here, or freed");
  KeepErrno keep;
  const int error = ibv_free_dm(gone.mapped()->dm);
  const MutexGuard guard(state->mutex);
  if (error == 0) {
    state->device_memory.retire(std::move(gone));
    return {};
  }
  state->device_memory.put_back(std::move(gone));
  return Error{positive(error)};
}

Result<void> memcpy_dm(ibv_exp_dm *dm, ibv_exp_memcpy_dm_attr *attr) {
  if (attr == nullptr) return invalid(copying, "attributes", 0, "must not be null");
  if (attr->comp_mask != 0) return invalid(copying, "comp_mask", attr->comp_mask, "unknown bits");
  ContextState *state = find_state(dm->context);
  if (state == nullptr) return Error{ENOTSUP};
  const Whole whole = find_whole(*state, dm);
  ibv_dm *modern = whole.dm;
  if (modern == nullptr) return invalid(copying, "dm", 0, "not allocated here, or freed");
  if (attr->host_addr == nullptr) return invalid(copying, "host_addr", 0, "must not be null");
  // libmlx5 compares the sum, which may wrap; the answer is its own.
  if (attr->length > whole.length || attr->dm_offset > whole.length - attr->length) {
    static_cast<void>(
        invalid(copying, "dm_offset", attr->dm_offset, "the end is beyond the memory"));
    return Error{EFAULT};
  }

  KeepErrno keep;
  int error;
  switch (attr->memcpy_dir) {
    case IBV_EXP_DM_CPY_TO_DEVICE:
      error = ibv_memcpy_to_dm(modern, attr->dm_offset, attr->host_addr, attr->length);
      break;
    case IBV_EXP_DM_CPY_TO_HOST:
      error = ibv_memcpy_from_dm(attr->host_addr, modern, attr->dm_offset, attr->length);
      break;
    default:
      return invalid(copying, "memcpy_dir", static_cast<std::uint32_t>(attr->memcpy_dir),
                     "no such direction");
  }
  if (error != 0) return Error{positive(error)};
  return {};
}

}  // namespace ibvexp::translate
