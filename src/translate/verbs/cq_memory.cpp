#include "translate/verbs/cq_memory.h"

#include "base/keep_errno.h"
#include "base/real.h"

#include <cerrno>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

namespace ibvexp::translate {

namespace {

// Where memory that is being allocated belongs: to a queue that this thread is
// creating, or, while one is resized, to the owner of the memory that this thread
// frees next.
thread_local CqState *being_created = nullptr;
thread_local void *not_yet_owned = nullptr;

std::size_t whole_pages(std::size_t size) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return (size + page - 1) / page * page;
}

// Pages of its own even for a doorbell record: a fork must not share it with
// anything.
void *allocate(ibv_pd *, void *context, std::size_t size, std::size_t, std::uint64_t type) {
  if (type != MLX5DV_RES_TYPE_CQ && type != MLX5DV_RES_TYPE_DBR) return IBV_ALLOCATOR_USE_DEFAULT;
  const std::size_t length = whole_pages(size);
  void *memory = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto &state = *static_cast<ContextState *>(context);
  try {
    const MutexGuard guard(state.mutex);
    state.cq_memory.insert_or_assign(memory, CqMemory{length, being_created});
  } catch (...) {
    munmap(memory, length);
    return nullptr;
  }
  if (type == MLX5DV_RES_TYPE_DBR) {
    if (being_created != nullptr) being_created->ring.doorbell = static_cast<__be32 *>(memory);
  } else if (being_created != nullptr) {
    being_created->ring.entries = static_cast<std::uint8_t *>(memory);
  } else {
    not_yet_owned = memory;
  }
  return memory;
}

void free_memory(ibv_pd *, void *context, void *memory, std::uint64_t type) {
  auto &state = *static_cast<ContextState *>(context);
  std::size_t length = 0;
  {
    const MutexGuard guard(state.mutex);
    const auto found = state.cq_memory.find(memory);
    if (found == state.cq_memory.end()) return;
    length = found->second.length;
    CqState *owner = found->second.owner;
    state.cq_memory.erase(found);
    if (type == MLX5DV_RES_TYPE_CQ && owner != nullptr && owner->ring.entries == memory) {
      // libmlx5 holds the lock of the queue while it replaces the buffer.
      owner->ring.entries = static_cast<std::uint8_t *>(not_yet_owned);
      if (not_yet_owned != nullptr) {
        state.cq_memory.at(not_yet_owned).owner = owner;
      } else {
        // The queue goes, perhaps without our seeing it.
        owner->poll.store(nullptr, std::memory_order_relaxed);
        owner->ring.ours = false;
      }
    }
    if (type == MLX5DV_RES_TYPE_CQ) not_yet_owned = nullptr;
  }
  munmap(memory, length);
}

void free_domain(ibv_pd *domain, ibv_pd *pd) {
  if (domain != nullptr) ibv_dealloc_pd(domain);
  if (pd != nullptr) ibv_dealloc_pd(pd);
}

// Two threads may both make one; the second goes again.
Result<ibv_pd *> domain_of(ContextState &context) {
  {
    const MutexGuard guard(context.mutex);
    if (context.cq_domain != nullptr) return context.cq_domain;
  }
  ibv_pd *pd = ibv_alloc_pd(context.context);
  if (pd == nullptr) return Error{errno != 0 ? errno : ENOMEM};
  ibv_parent_domain_init_attr attr{};
  attr.pd = pd;
  attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
  attr.alloc = allocate;
  attr.free = free_memory;
  attr.pd_context = &context;
  ibv_pd *domain = ibv_alloc_parent_domain(context.context, &attr);
  if (domain == nullptr) {
    const int reason = errno != 0 ? errno : ENOMEM;
    ibv_dealloc_pd(pd);
    return Error{reason};
  }
  {
    const MutexGuard guard(context.mutex);
    if (context.cq_domain == nullptr) {
      context.cq_domain = domain;
      context.cq_domain_pd = pd;
      return domain;
    }
  }
  free_domain(domain, pd);
  return context.cq_domain;
}

}  // namespace

Result<ibv_cq_ex *> create_cq_in_memory(ContextState &context, CqState &state,
                                        ibv_cq_init_attr_ex &attr, mlx5dv_cq_init_attr &dv) {
  const KeepErrno keep;
  if (!takes_queue_memory()) return keep.made(mlx5dv_create_cq(context.context, &attr, &dv));
  const auto domain = domain_of(context);
  if (!domain) return domain.failure();
  attr.comp_mask |= IBV_CQ_INIT_ATTR_MASK_PD;
  attr.parent_domain = domain.value();
  being_created = &state;
  ibv_cq_ex *cq = mlx5dv_create_cq(context.context, &attr, &dv);
  being_created = nullptr;
  return keep.made(cq);
}

void release_cq_memory(ContextState *context) {
  if (context == nullptr) return;
  const KeepErrno keep;
  free_domain(std::exchange(context->cq_domain, nullptr),
              std::exchange(context->cq_domain_pd, nullptr));
}

}  // namespace ibvexp::translate
