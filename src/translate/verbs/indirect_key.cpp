#include "translate/verbs/indirect_key.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "base/keep_errno.h"
#include "base/owned.h"
#include "base/real.h"
#include "trace/diagnose.h"
#include "translate/verbs/shared_region.h"

namespace ibvexp::translate {

namespace {

constexpr EntryId creating = EntryId::ibv_exp_create_mr;
constexpr EntryId querying = EntryId::ibv_exp_query_mkey;
constexpr EntryId allocating = EntryId::ibv_exp_alloc_mkey_list_memory;
constexpr EntryId freeing = EntryId::ibv_exp_dealloc_mkey_list_memory;

// What rdma-core's ibv_dereg_mr() looks at, see objects.h.
static_assert(offsetof(IndirectKey, mr_type) == sizeof(ibv_mr));
constexpr int null_mr = 1;  // IBV_MR_TYPE_NULL_MR

// The legacy provider counted entries in fours.
constexpr std::uint32_t in_fours(std::uint32_t entries) { return (entries + 3) / 4 * 4; }

constexpr std::size_t entry_size = 16;
constexpr std::size_t list_alignment = 2048;  // of what the device reads entries from

Result<void> check(const ibv_exp_create_mr_in &in) {
  if (in.comp_mask != 0) return invalid(creating, "comp_mask", in.comp_mask, "unknown bits");
  if (const auto flags = check_bits(creating, "create_flags", in.attr.create_flags,
                                    bits_of<"ibv_exp_mr_create_flags">(), ~std::uint64_t{0});
      !flags)
    return flags;
  if (const auto access = check_bits(creating, "exp_access_flags", in.attr.exp_access_flags,
                                     bits_of<"ibv_exp_access_flags">());
      !access)
    return access;
  if ((in.attr.exp_access_flags & (sharing_access | IBV_EXP_ACCESS_NO_RDMA)) != 0)
    return unsupported(creating, "exp_access_flags", in.attr.exp_access_flags,
                       "an indirect key has no memory to share");
  if (in.attr.max_klm_list_size > max_key_entries)
    return invalid(creating, "max_klm_list_size", in.attr.max_klm_list_size,
                   "more than 65531 entries");
  if (!mlx5dv_is_supported(in.pd->context->device))
    return unsupported(creating, "pd", 0, "indirect keys need an mlx5 device");
  return {};
}

}  // namespace

mlx5dv_mkey *make_mkey(ibv_pd *pd, std::uint32_t &entries) {
  mlx5dv_mkey_init_attr attr{};
  attr.pd = pd;
  attr.create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT;
  attr.max_entries = static_cast<std::uint16_t>(entries);
  mlx5dv_mkey *mkey = mlx5dv_create_mkey(&attr);
  entries = attr.max_entries;
  return mkey;
}

Result<ibv_mr *> create_mr(ContextState &state, ibv_exp_create_mr_in *in) {
  if (const auto checked = check(*in); !checked) return checked.failure();

  const KeepErrno keep;
  // Not by new: rdma-core may be the one to free it.
  OwnedKey key(static_cast<IndirectKey *>(std::calloc(1, sizeof(IndirectKey))));
  if (!key) return Error{ENOMEM};
  key->listed = in_fours(in->attr.max_klm_list_size);
  // One more, for the header of a pattern.
  key->entries = std::min(key->listed + 1, largest_key);
  Owned<mlx5dv_mkey, mlx5dv_destroy_mkey> mkey(make_mkey(in->pd, key->entries));
  if (!mkey) return keep.reason();
  key->mkey = mkey.get();
  key->mr.context = in->pd->context;
  key->mr.pd = in->pd;
  key->mr.lkey = mkey->lkey;
  key->mr.rkey = mkey->rkey;
  key->mr_type = null_mr;

  special_regions = true;
  const MutexGuard guard(state.mutex);
  state.keys.set(key->mr.lkey >> 8, key.get());
  static_cast<void>(mkey.release());
  return &key.release()->mr;
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
  state.retired_keys.keep(OwnedKey(&key));
  return 0;
}

Result<void> query_mkey(ContextState &state, ibv_mr *mr, ibv_exp_mkey_attr *attr) {
  if (attr == nullptr) return invalid(querying, "attributes", 0, "must not be null");
  if (attr->comp_mask != 0) return invalid(querying, "comp_mask", attr->comp_mask, "unknown bits");
  // A region with memory has none.
  const IndirectKey *key = find_key(&state, mr);
  attr->max_klm_list_size = key != nullptr ? key->listed : 0;
  return {};
}

Result<ibv_exp_mkey_list_container *> alloc_mkey_list_memory(
    ContextState &state, ibv_exp_mkey_list_container_attr *attr) {
  if (attr->comp_mask != 0)
    return invalid(allocating, "comp_mask", attr->comp_mask, "unknown bits");
  if (attr->mkey_list_type != IBV_EXP_MKEY_LIST_TYPE_INDIRECT_MR) {
    static_cast<void>(invalid(allocating, "mkey_list_type", attr->mkey_list_type,
                              "must be IBV_EXP_MKEY_LIST_TYPE_INDIRECT_MR"));
    return Error{ENOMEM};  // the legacy provider's number
  }
  if (attr->max_klm_list_size == 0 || attr->max_klm_list_size > largest_key)
    return invalid(allocating, "max_klm_list_size", attr->max_klm_list_size, "must be 1 to 65532");

  // The device reads entries in fours, and one more may be a header.
  const std::size_t entries = (std::size_t{attr->max_klm_list_size} + 1 + 3) / 4 * 4;
  const std::size_t size =
      (entries * entry_size + list_alignment - 1) / list_alignment * list_alignment;
  auto made = std::make_unique<KeyListMemory>();
  const KeepErrno keep;
  Owned<void, std::free> room(std::aligned_alloc(list_alignment, size));
  if (!room) return Error{ENOMEM};
  OwnedReal<ibv_mr> mr(ibv_reg_mr(attr->pd, room.get(), size, 0));
  if (!mr) return keep.reason();
  made->mr = mr.get();
  made->entries = room.get();
  made->handle.max_klm_list_size = attr->max_klm_list_size;
  made->handle.context = attr->pd->context;

  ibv_exp_mkey_list_container *handle = &state.key_lists.add(std::move(made))->handle;
  static_cast<void>(mr.release());
  static_cast<void>(room.release());
  return handle;
}

Result<void> dealloc_mkey_list_memory(ContextState &state, ibv_exp_mkey_list_container *memory) {
  const auto gone = state.key_lists.claim(memory);
  if (!gone) return invalid(freeing, "mem", 0, "not allocated here, or freed");
  const KeepErrno keep;
  const int error = real().ibv_dereg_mr(gone->mr);
  if (error == 0) std::free(gone->entries);
  return state.key_lists.settle(gone, error);
}

}  // namespace ibvexp::translate
