#include "translate/verbs/indirect_key.h"

#include "base/keep_errno.h"
#include "base/real.h"
#include "trace/diagnose.h"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace ibvexp::translate {

namespace {

constexpr EntryId creating = EntryId::ibv_exp_create_mr;
constexpr EntryId querying = EntryId::ibv_exp_query_mkey;
constexpr EntryId allocating = EntryId::ibv_exp_alloc_mkey_list_memory;
constexpr EntryId freeing = EntryId::ibv_exp_dealloc_mkey_list_memory;

// What rdma-core's ibv_dereg_mr() looks at, see objects.h.
static_assert(offsetof(IndirectKey, mr_type) == sizeof(ibv_mr));
constexpr int null_mr = 1;  // IBV_MR_TYPE_NULL_MR

constexpr std::size_t entry_size = 16;
constexpr std::size_t list_alignment = 2048;  // of what the device reads entries from

mlx5dv_mkey *make_mkey(ibv_pd *pd, std::uint32_t &entries) {
  mlx5dv_mkey_init_attr attr{};
  attr.pd = pd;
  attr.create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT;
  attr.max_entries = static_cast<std::uint16_t>(entries);
  mlx5dv_mkey *mkey = mlx5dv_create_mkey(&attr);
  entries = attr.max_entries;
  return mkey;
}

Result<void> check(const ibv_exp_create_mr_in &in) {
  if (in.comp_mask != 0) return invalid(creating, "comp_mask", in.comp_mask, "unknown bits");
  if (const auto flags = check_bits(creating, "create_flags", in.attr.create_flags,
                                    bits_of<"ibv_exp_mr_create_flags">());
      !flags)
    return flags;
  if ((in.attr.create_flags & IBV_EXP_MR_INDIRECT_KLMS) == 0)
    return invalid(creating, "create_flags", in.attr.create_flags, "no kind of key named");
  if (const auto access = check_bits(creating, "exp_access_flags", in.attr.exp_access_flags,
                                     bits_of<"ibv_exp_access_flags">());
      !access)
    return access;
  if (in.attr.max_klm_list_size == 0 || in.attr.max_klm_list_size > max_key_entries)
    return invalid(creating, "max_klm_list_size", in.attr.max_klm_list_size, "1 to 65531 entries");
  if (!mlx5dv_is_supported(in.pd->context->device))
    return unsupported(creating, "pd", 0, "indirect keys are for mlx5 only");
  return {};
}

}  // namespace

Result<ibv_mr *> create_mr(ibv_exp_create_mr_in *in) {
  if (const auto checked = check(*in); !checked) return checked.failure();
  ContextState *state = find_state(in->pd->context);
  if (state == nullptr) return Error{ENOTSUP};

  KeepErrno keep;
  // Not by new: rdma-core may be the one to free it.
  auto *key = static_cast<IndirectKey *>(std::calloc(1, sizeof(IndirectKey)));
  if (key == nullptr) return Error{ENOMEM};
  key->entries = in->attr.max_klm_list_size + 1;
  key->mkey = make_mkey(in->pd, key->entries);
  if (key->mkey == nullptr) {
    const Error reason = keep.reason();
    std::free(key);
    return reason;
  }
  key->mr.context = in->pd->context;
  key->mr.pd = in->pd;
  key->mr.lkey = key->mkey->lkey;
  key->mr.rkey = key->mkey->rkey;
  key->mr_type = null_mr;
  try {
    const MutexGuard guard(state->mutex);
    state->keys.set(key->mr.lkey >> 8, key);
  } catch (...) {
    mlx5dv_destroy_mkey(key->mkey);
    std::free(key);
    throw;
  }
  return &key->mr;
}

int destroy_key(ContextState &state, IndirectKey &key) {
  const std::uint32_t index = key.mr.lkey >> 8;
  {
    // Out first: another thread may get the same index for a new key.
    const MutexGuard guard(state.mutex);
    state.keys.set(index, nullptr);
  }
  const int error = mlx5dv_destroy_mkey(key.mkey);
  if (error != 0) {
    // The room for it is there.
    const MutexGuard guard(state.mutex);
    state.keys.set(index, &key);
    return error;
  }
  const MutexGuard guard(state.mutex);
  state.retired_handles.keep(AnyObject(&key, {std::free}));
  return 0;
}

Result<void> query_mkey(ibv_mr *mr, ibv_exp_mkey_attr *attr) {
  if (attr == nullptr) return invalid(querying, "attributes", 0, "must not be null");
  if (attr->comp_mask != 0) return invalid(querying, "comp_mask", attr->comp_mask, "unknown bits");
  const IndirectKey *key = find_key(find_state(mr->context), mr);
  if (key == nullptr) return invalid(querying, "mr", mr->lkey, "not made by ibv_exp_create_mr");
  // Good for a repeating pattern too, whose header takes one.
  attr->max_klm_list_size = key->entries - 1;
  return {};
}

Result<ibv_exp_mkey_list_container *> alloc_mkey_list_memory(
    ibv_exp_mkey_list_container_attr *attr) {
  if (attr->comp_mask != 0)
    return invalid(allocating, "comp_mask", attr->comp_mask, "unknown bits");
  if (attr->mkey_list_type != IBV_EXP_MKEY_LIST_TYPE_INDIRECT_MR)
    return invalid(allocating, "mkey_list_type", attr->mkey_list_type, "no such type");
  if (attr->max_klm_list_size == 0 || attr->max_klm_list_size > largest_key)
    return invalid(allocating, "max_klm_list_size", attr->max_klm_list_size, "1 to 65532 entries");
  ContextState *state = find_state(attr->pd->context);
  if (state == nullptr) return Error{ENOTSUP};

  // The device reads entries in fours, and one more may be a header.
  const std::size_t entries = (std::size_t{attr->max_klm_list_size} + 1 + 3) / 4 * 4;
  const std::size_t size =
      (entries * entry_size + list_alignment - 1) / list_alignment * list_alignment;
  auto made = std::make_unique<KeyListMemory>();
  KeepErrno keep;
  void *room = std::aligned_alloc(list_alignment, size);
  if (room == nullptr) return Error{ENOMEM};
  made->entries = room;
  made->handle.max_klm_list_size = attr->max_klm_list_size;
  made->handle.context = attr->pd->context;
  made->mr = ibv_reg_mr(attr->pd, room, size, 0);
  if (made->mr == nullptr) {
    const Error reason = keep.reason();
    std::free(room);
    return reason;
  }
  ibv_mr *mr = made->mr;
  try {
    const MutexGuard guard(state->mutex);
    return &state->key_lists.add(std::move(made))->handle;
  } catch (...) {
    real().ibv_dereg_mr(mr);
    std::free(room);
    throw;
  }
}

Result<void> dealloc_mkey_list_memory(ibv_exp_mkey_list_container *memory) {
  ContextState *state = find_state(memory->context);
  if (state == nullptr) return Error{ENOTSUP};
  Handles<KeyListMemory>::Node gone;
  {
    const MutexGuard guard(state->mutex);
    gone = state->key_lists.take(memory);
  }
  if (!gone) return invalid(freeing, "mem", 0, "not allocated here, or freed");
  KeepErrno keep;
  const int error = real().ibv_dereg_mr(gone.mapped()->mr);
  const MutexGuard guard(state->mutex);
  if (error == 0) {
    std::free(gone.mapped()->entries);
    state->key_lists.retire(std::move(gone));
    return {};
  }
  state->key_lists.put_back(std::move(gone));
  return Error{positive(error)};
}

bool makes_indirect_keys(ContextState &state) {
  if (state.made_largest_key.load(std::memory_order_relaxed)) return true;
  // Keys that no request could fill.
  if (!mlx5dv_is_supported(state.context->device) || !takes_raw_entries()) return false;
  const KeepErrno keep;
  ibv_pd *pd = ibv_alloc_pd(state.context);
  if (pd == nullptr) return false;
  std::uint32_t entries = largest_key;
  mlx5dv_mkey *mkey = make_mkey(pd, entries);
  if (mkey != nullptr) mlx5dv_destroy_mkey(mkey);
  ibv_dealloc_pd(pd);
  // A refusal may be one of the moment.
  if (mkey != nullptr) state.made_largest_key.store(true, std::memory_order_relaxed);
  return mkey != nullptr;
}

}  // namespace ibvexp::translate
