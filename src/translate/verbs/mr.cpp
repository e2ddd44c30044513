#include "translate/verbs/mr.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/keep_errno.h"
#include "base/real.h"
#include "base/uncancelled.h"
#include "table/feature_rows.h"
#include "table/options.h"
#include "trace/diagnose.h"
#include "translate/convert/access_convert.h"
#include "translate/verbs/indirect_key.h"
#include "translate/verbs/shared_region.h"

namespace ibvexp::translate {

namespace {

constexpr EntryId registering = EntryId::ibv_exp_reg_mr;
constexpr EntryId changing = EntryId::ibv_exp_rereg_mr;
constexpr EntryId prefetching = EntryId::ibv_exp_prefetch_mr;

// Bits without a meaning that the legacy provider did not look at. The one between them and
// those above it refused.
constexpr std::uint64_t ignorable_access =
    (std::uint64_t{IBV_EXP_ACCESS_RESERVED} - 1) & ~std::uint64_t{1 << 6};

constexpr std::size_t huge_page = std::size_t{2} << 20;

std::size_t round_up(std::size_t length, std::size_t unit) {
  return (length + unit - 1) / unit * unit;
}

Mapping map_private(void *where, std::size_t length, int flags = 0) {
  return map(where, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags);
}

// Stands in for physically contiguous memory: huge pages, if there are some. The legacy
// promise was best effort, too.
Mapping allocate(std::size_t length) {
  if (length >= huge_page) {
    if (Mapping huge = map_private(nullptr, round_up(length, huge_page), MAP_HUGETLB);
        huge.address() != nullptr)
      return huge;
  }
  return map_private(nullptr, round_up(length, static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))));
}

[[gnu::always_inline]] inline Result<void> check(const ibv_exp_reg_mr_in &in) {
  if (const auto bits = check_bits(registering, "comp_mask", in.comp_mask,
                                   bits_of<"ibv_exp_reg_mr_in_comp_mask">());
      !bits)
    return bits;
  if (const auto access = check_bits(registering, "exp_access", in.exp_access,
                                     bits_of<"ibv_exp_access_flags">(), ignorable_access);
      !access)
    return access;
  if ((in.comp_mask & IBV_EXP_REG_MR_CREATE_FLAGS) != 0) {
    if (const auto flags = check_bits(registering, "create_flags", in.create_flags,
                                      bits_of<"ibv_exp_reg_mr_create_flags">(), ~std::uint64_t{0});
        !flags)
      return flags;
  }
  if ((in.exp_access & IBV_EXP_ACCESS_RELAXED) != 0 &&
      (in.exp_access & IBV_EXP_ACCESS_ON_DEMAND) == 0)
    ignored(registering, "exp_access", in.exp_access, "RELAXED has no effect without ON_DEMAND");
  if ((in.exp_access & IBV_EXP_ACCESS_ALLOCATE_MR) != 0) {
    if (in.addr != nullptr)
      return invalid(registering, "addr", reinterpret_cast<std::uintptr_t>(in.addr),
                     "must be null with ALLOCATE_MR");
    if (in.length == 0 || in.length > SIZE_MAX / 2)
      return invalid(registering, "length", in.length, "0 or too large to allocate");
  }
  return {};
}

// Device memory needs no allocation, and is never paged.
Result<void> check_on_device(const ibv_exp_reg_mr_in &in) {
  if (in.dm == nullptr) return invalid(registering, "dm", 0, "must not be null");
  constexpr std::uint64_t host_only = IBV_EXP_ACCESS_ALLOCATE_MR | IBV_EXP_ACCESS_ON_DEMAND |
                                      IBV_EXP_ACCESS_RELAXED | IBV_EXP_ACCESS_MW_BIND |
                                      sharing_access;
  if ((in.exp_access & host_only) != 0)
    return invalid(registering, "exp_access", in.exp_access, "not allowed for device memory");
  if ((in.comp_mask & IBV_EXP_REG_MR_CREATE_FLAGS) != 0 && in.create_flags != 0)
    return invalid(registering, "create_flags", in.create_flags, "not allowed for device memory");
  return {};
}

[[gnu::noinline]] Result<ibv_mr *> register_on_device(ContextState &state,
                                                      const ibv_exp_reg_mr_in &in) {
  if (const auto checked = check_on_device(in); !checked) return checked.failure();
  const DeviceMemory *found = state.device_memory.find(in.dm);
  if (found == nullptr) return invalid(registering, "dm", 0, "of another context, or freed");
  const auto offset = reinterpret_cast<std::uintptr_t>(in.addr);
  if (!found->holds(offset, in.length)) {
    static_cast<void>(
        invalid(registering, "addr", offset, "the range ends beyond the device memory"));
    return Error{EFAULT};  // the legacy provider's number
  }
  KeepErrno keep;
  ibv_mr *mr = ibv_reg_dm_mr(in.pd, found->dm, offset, in.length,
                             to_modern_access(in.exp_access) | IBV_ACCESS_ZERO_BASED);
  if (mr == nullptr) return keep.reason();
  return mr;
}

// Allocates the memory of a request; none if the caller passes its own.
Result<void> provide(const ibv_exp_reg_mr_in &in, Mapping &memory) {
  if (!is_provided(in)) return {};
  if (in.addr != nullptr) {
    // Keeps existing mappings: nothing is mapped over them.
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    memory = map_private(in.addr, round_up(in.length, page));
    return {};
  }
  memory = allocate(in.length);
  if (memory.address() == nullptr) return Error{ENOMEM};
  return {};
}

// With memory of ours, if the request asks for some.
[[gnu::noinline]] Result<ibv_mr *> register_provided(ContextState &state, ibv_exp_reg_mr_in *in) {
  const KeepErrno keep;
  Mapping memory;
  if (const auto provided = provide(*in, memory); !provided) return provided.failure();
  void *start = memory.address() != nullptr ? memory.address() : in->addr;
  errno = 0;
  OwnedReal<ibv_mr> mr(ibv_reg_mr(in->pd, start, in->length, to_modern_access(in->exp_access)));
  if (mr == nullptr) return keep.reason();

  if (memory.address() != nullptr) {
    keep_memory(state, mr.get(), memory.get());
    memory.keep();
    // Programs read it there, too.
    in->addr = start;
  }
  return mr.release();
}

Result<ibv_mr *> register_plain(const ibv_exp_reg_mr_in &in) {
  const KeepErrno keep;
  return keep.made(ibv_reg_mr(in.pd, in.addr, in.length, to_modern_access(in.exp_access)));
}

[[gnu::noinline]] Result<ibv_mr *> register_any(ContextState &state, ibv_exp_reg_mr_in *in) {
  if (const auto checked = check(*in); !checked) return checked.failure();
  if ((in->comp_mask & IBV_EXP_REG_MR_DM) != 0) return register_on_device(state, *in);
  if ((in->exp_access & sharing_access) != 0) return register_shared(state, *in);
  return register_provided(state, in);
}

}  // namespace

Result<ibv_mr *> reg_mr(ContextState &state, ibv_exp_reg_mr_in *in) {
  static_assert((access_rights & ~bits_of<"ibv_exp_access_flags">().served) == 0);
  if (in->comp_mask == 0 && (in->exp_access & ~access_rights) == 0) [[likely]]
    return register_plain(*in);
  return register_any(state, in);
}

int dereg_mr(ContextState *state, ibv_mr *mr) {
  if (state == nullptr) return real().ibv_dereg_mr(mr);
  if (IndirectKey *key = find_key(state, mr)) return destroy_key(*state, *key);
  OwnedMemory memory{};
  {
    // Out first: another thread may get the same address for a new region.
    const MutexGuard guard(state->mutex);
    // rdma-core would free memory that is kept for a second call like this one.
    if (state->retired_keys.contains(mr)) return EINVAL;
    if (auto node = state->owned_memory.extract(mr)) memory = node.mapped();
  }
  const int result = real().ibv_dereg_mr(mr);
  if (memory.address == nullptr) return result;
  if (result == 0) {
    release(*state, memory);
  } else {
    try {
      const MutexGuard guard(state->mutex);
      state->owned_memory[mr] = memory;
    } catch (...) {
      // Out of memory: the pages stay mapped for good, which is safe.
    }
  }
  return result;
}

namespace {

Result<void> check_allocation(unsigned asked, const void *addr, std::size_t length,
                              std::uint64_t exp_access) {
  constexpr auto id = FeatureId::contig_rereg_mr_allocate;
  if (effective_now(answer_of<id>).verdict == Verdict::unsupported)
    return unsupported(changing, id, "exp_access", exp_access);
  if ((asked & IBV_EXP_REREG_MR_CHANGE_TRANSLATION) == 0)
    return invalid(changing, "flags", asked,
                   "ALLOCATE_MR needs IBV_EXP_REREG_MR_CHANGE_TRANSLATION");
  if (addr != nullptr)
    return invalid(changing, "addr", reinterpret_cast<std::uintptr_t>(addr),
                   "must be null with ALLOCATE_MR");
  if (length == 0 || length > SIZE_MAX / 2)
    return invalid(changing, "length", length, "0 or too large to allocate");
  opened_by(Beyond::rereg_allocate, name_of_feature<id>);
  return {};
}

// Negative codes say which step failed; errno has the reason of some.
Result<void> changed(const KeepErrno &keep, int error) {
  if (error == 0) return {};
  return keep.reason(error == IBV_REREG_MR_ERR_INPUT ? EINVAL : EIO);
}

// allocates: to memory of ours.
[[gnu::noinline]] Result<void> change_memory(ContextState &state, ibv_mr *mr, int flags, ibv_pd *pd,
                                             void *addr, std::size_t length, int access,
                                             bool allocates) {
  const Uncancelled whole;
  const KeepErrno keep;
  Mapping memory;
  OwnedMemory *kept = nullptr;
  if (allocates) {
    memory = allocate(length);
    addr = memory.address();
    if (addr == nullptr) return Error{ENOMEM};
    // Before the region changes: this may fail. No address is no memory.
    const MutexGuard guard(state.mutex);
    kept = &state.owned_memory[mr];
    special_regions = true;
  }
  const int error = ibv_rereg_mr(mr, flags, pd, addr, length, access);
  // In both cases the region has the new memory.
  if (allocates && (error == 0 || error == IBV_REREG_MR_ERR_DO_FORK_OLD)) {
    OwnedMemory former{};
    {
      const MutexGuard guard(state.mutex);
      former = std::exchange(*kept, memory.keep());
    }
    release(state, former);
  } else if (error == 0) {
    // The former memory stays: the program may still use it.
    OwnedMemory former{};
    {
      const MutexGuard guard(state.mutex);
      if (const auto found = state.owned_memory.find(mr); found != state.owned_memory.end()) {
        former = found->second;
        found->second.file = -1;
      }
    }
    stop_sharing(state, former);
  }
  return changed(keep, error);
}

}  // namespace

Result<void> rereg_mr(ContextState &state, ibv_mr *mr, int flags, ibv_pd *pd, void *addr,
                      std::size_t length, std::uint64_t exp_access, ibv_exp_rereg_mr_attr *attr) {
  constexpr unsigned known = IBV_EXP_REREG_MR_CHANGE_TRANSLATION | IBV_EXP_REREG_MR_CHANGE_PD |
                             IBV_EXP_REREG_MR_CHANGE_ACCESS;
  static_assert(known == IBV_REREG_MR_FLAGS_SUPPORTED, "the flags coincide");
  const auto asked = static_cast<unsigned>(flags);
  if (special_regions && find_key(&state, mr) != nullptr)
    return invalid(changing, "mr", mr->lkey, "an indirect key has no memory of its own");
  if (attr != nullptr && attr->comp_mask != 0)
    return invalid(changing, "comp_mask", attr->comp_mask, "unknown bits");
  if ((asked & IBV_EXP_REREG_MR_KEEP_VALID) != 0)
    return unsupported(changing, "flags", asked,
                       "KEEP_VALID: rdma-core cannot keep the old region");
  if ((asked & ~known) != 0) return invalid(changing, "flags", asked, "unknown bits");
  bool allocates = false;
  if ((asked & IBV_EXP_REREG_MR_CHANGE_ACCESS) != 0) {
    if (const auto access =
            check_bits(changing, "exp_access", exp_access, bits_of<"ibv_exp_access_flags">());
        !access)
      return access;
    if ((exp_access & sharing_access) != 0)
      return unsupported(changing, "exp_access", exp_access,
                         "only ibv_exp_reg_mr can make a region shared");
    if ((exp_access & IBV_EXP_ACCESS_ALLOCATE_MR) != 0) {
      if (const auto asks = check_allocation(asked, addr, length, exp_access); !asks) return asks;
      allocates = true;
    }
  }
  if ((asked & IBV_EXP_REREG_MR_CHANGE_PD) != 0 && (pd == nullptr || pd->context != mr->context))
    return invalid(changing, "pd", 0, "null or of another context");

  const int access = static_cast<int>(to_modern_access(exp_access));
  if ((asked & IBV_EXP_REREG_MR_CHANGE_TRANSLATION) != 0)
    return change_memory(state, mr, flags, pd, addr, length, access, allocates);
  const KeepErrno keep;
  return changed(keep, ibv_rereg_mr(mr, flags, pd, addr, length, access));
}

namespace {

// Bytes. What is not known is not bounded.
std::size_t host_memory() {
  const long pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGESIZE);
  if (pages <= 0 || page <= 0) return SIZE_MAX;
  return static_cast<std::size_t>(pages) * static_cast<std::size_t>(page);
}

std::uintptr_t end_of(std::uintptr_t start, std::size_t length) {
  return length > UINTPTR_MAX - start ? UINTPTR_MAX : start + length;
}

}  // namespace

Result<void> prefetch_mr(ibv_mr *mr, ibv_exp_prefetch_attr *attr) {
  if (attr == nullptr) return invalid(prefetching, "attributes", 0, "must not be null");
  if (attr->comp_mask != 0)
    return invalid(prefetching, "comp_mask", attr->comp_mask, "unknown bits");
  if (const auto flags =
          check_bits(prefetching, "flags", attr->flags, bits_of<"ibv_exp_prefetch_attr_flags">());
      !flags)
    return flags;
  // The legacy kernel took hints about what lies outside of the region, too.
  const auto hinted = reinterpret_cast<std::uintptr_t>(attr->addr);
  const auto region = reinterpret_cast<std::uintptr_t>(mr->addr);
  const std::uintptr_t start = std::max(hinted, region);
  const std::uintptr_t stop = std::min(end_of(hinted, attr->length), end_of(region, mr->length));
  if (start >= stop) return {};

  bool writes = (attr->flags & IBV_EXP_PREFETCH_WRITE_ACCESS) != 0;
  // A region of all memory may be named as a whole, which no host could hold. None has less than this.
  constexpr std::size_t little = std::size_t{1} << 26;
  const std::size_t asked = stop - start;
  const std::size_t end = asked <= little ? asked : std::min(asked, host_memory());
  // Longer ranges than one element can name are brought in piece by piece.
  constexpr std::size_t largest = std::size_t{1} << 30;
  const KeepErrno keep;
  for (std::size_t done = 0; done < end;) {
    const std::size_t length = std::min(end - done, largest);
    ibv_sge piece{start + done, static_cast<std::uint32_t>(length), mr->lkey};
    const int error = ibv_advise_mr(
        mr->pd, writes ? IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE : IBV_ADVISE_MR_ADVICE_PREFETCH, 0,
        &piece, 1);
    if (error == 0) [[likely]] {
      done += length;
      continue;
    }
    // A hint about rights as well: the legacy kernel took it for any region. Linux up to 5.10
    // says EINVAL for each reason.
    if ((error == EPERM || error == EINVAL) && writes) {
      writes = false;
      continue;
    }
    // A hint: what the kernel cannot do is not a failure of the request, and the pages of a
    // region that is not on demand (ENOENT, EINVAL) are there already.
    if (error == EOPNOTSUPP || error == ENOSYS || error == ENOENT || error == EINVAL) return {};
    return Error{error};
  }
  return {};
}

}  // namespace ibvexp::translate
