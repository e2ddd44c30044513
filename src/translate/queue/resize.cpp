// ibv_resize_cq() of a queue that the engine drives.
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <sys/mman.h>

#include <bit>
#include <cerrno>
#include <limits>

#include "base/log.h"
#include "base/real.h"
#include "translate/queue/driven.h"

namespace ibvexp::queue {

namespace {

// The kernel's half of ibv_resize_cq(), without libmlx5's: the ring of that many entries
// is the queue's from here on. 0 or an errno value.
int resize_in_kernel(ibv_cq *back, const std::uint8_t *ring, std::uint32_t entries,
                     std::uint32_t entry_bytes) {
  struct {
    ib_uverbs_cmd_hdr head;
    std::uint8_t request[sizeof(ib_uverbs_resize_cq)];  // libibverbs writes it
    mlx5_ib_resize_cq driver;
  } command{};
  ib_uverbs_resize_cq_resp answer{};
  static auto *const resize =
      reinterpret_cast<int (*)(ibv_cq *, int, void *, std::size_t, void *, std::size_t)>(
          find_real("ibv_cmd_resize_cq", nullptr));
  if (resize == nullptr) {
    log(LogLevel::warn, "ibv_resize_cq: this libibverbs does not export ibv_cmd_resize_cq");
    return ENOTSUP;
  }
  command.driver.buf_addr = reinterpret_cast<std::uintptr_t>(ring);
  command.driver.cqe_size = static_cast<std::uint16_t>(entry_bytes);
  return resize(back, static_cast<int>(entries - 1), &command, sizeof(command), &answer,
                sizeof(answer));
}

// What libmlx5 does with memory of the device: after ibv_fork_init() a child does not get it, so
// that the parent's pages stay where they are.
void keep_from_child(void *memory, std::size_t bytes, const char *how) {
  auto *const keep = reinterpret_cast<int (*)(void *, std::size_t)>(find_real(how, "IBVERBS_1.1"));
  if (keep != nullptr && keep(memory, bytes) != 0)
    log(LogLevel::warn, "ibv_resize_cq: %s failed: not safe across fork()", how);
}

// With entries that the device has not written. Null if there is no memory.
std::uint8_t *make_ring(std::size_t bytes, std::uint32_t entry_bytes) {
  void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto *ring = static_cast<std::uint8_t *>(memory);
  for (std::size_t at = entry_bytes; at <= bytes; at += entry_bytes)
    ring[at - 1] = MLX5_CQE_INVALID << 4;
  keep_from_child(memory, bytes, "ibv_dontfork_range");
  return ring;
}

void free_ring(std::uint8_t *ring, std::size_t bytes) {
  keep_from_child(ring, bytes, "ibv_dofork_range");
  munmap(ring, bytes);
}

}  // namespace

void change_ring(CqFront &front, std::uint8_t *ring, std::size_t bytes) noexcept {
  if (front.own.ring != nullptr) free_ring(front.own.ring, front.own.ring_bytes);
  front.own.ring = ring;
  front.own.ring_bytes = bytes;
}

int resize(CqFront &front, int cqe) noexcept {
  constexpr std::int64_t most_bytes = std::numeric_limits<int>::max();
  if (cqe < 0 || std::int64_t{cqe} * 64 > most_bytes) return EINVAL;
  engine::CompletionQueue &queue = *front.own.engine;
  const std::uint32_t entries = std::bit_ceil(static_cast<std::uint32_t>(cqe) + 1);
  const engine::Guard guard(queue.lock);
  if (entries == queue.size) return 0;
  const std::size_t bytes = std::size_t{entries} * queue.entry_bytes;
  std::uint8_t *const ring = make_ring(bytes, queue.entry_bytes);
  if (ring == nullptr) return ENOMEM;
  const int error = resize_in_kernel(front.own.back, ring, entries, queue.entry_bytes);
  if (error != 0) {
    free_ring(ring, bytes);
    return error;
  }
  if (!engine::move_to(queue, ring, entries))
    log(LogLevel::error, "ibv_resize_cq: CQ %#x: the device has not closed the old ring",
        front.legacy.cqn);
  change_ring(front, ring, bytes);
  front.shown.cqe = static_cast<int>(entries - 1);
  mlx5dv_cq facts = facts_of(front.own.back);
  correct(front, facts);
  fill(front, facts);
  return 0;
}

void correct(const CqFront &front, mlx5dv_cq &facts) noexcept {
  if (front.own.ring == nullptr) return;
  facts.buf = front.own.ring;
  facts.cqe_cnt = static_cast<std::uint32_t>(front.shown.cqe) + 1;
}

}  // namespace ibvexp::queue
