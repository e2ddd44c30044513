// Regions that other processes register, too: their memory is a file in /dev/shm, whose name is the
// device's and the region's handle, and whose mode says who may. Its owner holds a lock on it
// while the region exists: a file without a lock is what a process left that died. Children have the
// lock, as they have the device's descriptor, which keeps the region as well.
#pragma once

#include <infiniband/verbs_exp.h>
#include <sys/mman.h>

#include <cstdint>
#include <utility>

#include "base/result.h"
#include "translate/state/context_state.h"

namespace ibvexp::translate {

inline constexpr std::uint64_t sharing_access =
    IBV_EXP_ACCESS_SHARED_MR_USER_READ | IBV_EXP_ACCESS_SHARED_MR_USER_WRITE |
    IBV_EXP_ACCESS_SHARED_MR_GROUP_READ | IBV_EXP_ACCESS_SHARED_MR_GROUP_WRITE |
    IBV_EXP_ACCESS_SHARED_MR_OTHER_READ | IBV_EXP_ACCESS_SHARED_MR_OTHER_WRITE;

// Whether the memory of the region is to be the library's.
inline bool is_provided(const ibv_exp_reg_mr_in &in) {
  return (in.exp_access & IBV_EXP_ACCESS_ALLOCATE_MR) != 0 ||
         ((in.comp_mask & IBV_EXP_REG_MR_CREATE_FLAGS) != 0 &&
          (in.create_flags & IBV_EXP_REG_MR_CREATE_CONTIG) != 0);
}

// ibv_exp_reg_mr() with some of these. The access has been checked.
Result<ibv_mr *> register_shared(ContextState &state, ibv_exp_reg_mr_in &in);

Result<ibv_mr *> reg_shared_mr(ContextState &state, ibv_exp_reg_shared_mr_in *in);

// Pages that were mapped for a region: unmapped unless kept.
class Mapping {
 public:
  Mapping() = default;
  Mapping(void *address, std::size_t length) : memory_{address, length} {}
  Mapping(Mapping &&other) noexcept : memory_(other.keep()) {}
  Mapping &operator=(Mapping &&other) noexcept {
    std::swap(memory_, other.memory_);
    return *this;
  }
  ~Mapping() {
    if (memory_.address != nullptr) ::munmap(memory_.address, memory_.length);
  }

  void *address() const { return memory_.address; }
  const OwnedMemory &get() const { return memory_; }
  OwnedMemory keep() { return std::exchange(memory_, {}); }

 private:
  OwnedMemory memory_{};
};

// mmap(); where: just there, or anywhere. Without an address, and errno set, where it fails.
Mapping map(void *where, std::size_t length, int protection, int flags, int file = -1);

// The region has that memory. Throws bad_alloc.
void keep_memory(ContextState &state, const ibv_mr *mr, const OwnedMemory &memory);

// Other processes find the region no more. Those that have attached to it keep its memory.
void stop_sharing(const ContextState &state, OwnedMemory &memory) noexcept;

// Memory of a region that is gone.
void release(const ContextState &state, OwnedMemory memory) noexcept;

}  // namespace ibvexp::translate
