#include "translate/queue/engine/open.h"

#include <algorithm>
#include <bit>

#include "translate/queue/engine/post_shared.h"

namespace ibvexp::engine {

namespace {

// What a closed queue has for a ring.
struct alignas(64) Nothing {
  std::uint8_t entry[cqe_bytes] = {};
  std::uint32_t record[2] = {};
  std::uint8_t page[64] = {};

  constexpr Nothing() { entry[cqe_bytes - 1] = MLX5_CQE_INVALID << 4; }
};
constinit Nothing nothing;

// Managed queues do not ring: the device does not look at their records, which stay at what
// libmlx5 has written, as with the legacy provider.
struct alignas(64) Unread {
  std::uint8_t page[64] = {};
  std::uint32_t record = 0;
};
constinit Unread unread;

// More than are ever under way.
constexpr std::uint32_t boundless = 1u << 30;

}  // namespace

void manage(SendQueue &queue, std::uint32_t channel) {
  queue.managed.is_master = (channel & IBV_EXP_QP_CREATE_CROSS_CHANNEL) != 0;
  queue.managed.is_slave = (channel & IBV_EXP_QP_CREATE_MANAGED_SEND) != 0;
  if (queue.managed.is_slave) queue.doorbell = {unread.page, &unread.record};
  if ((channel & IBV_EXP_QP_CREATE_IGNORE_SQ_OVERFLOW) != 0) queue.max_posted = boundless;
}

void manage(ReceiveQueue &queue, std::uint32_t channel) {
  queue.managed.is_slave = (channel & IBV_EXP_QP_CREATE_MANAGED_RECV) != 0;
  if (queue.managed.is_slave) queue.record = &unread.record;
  if ((channel & IBV_EXP_QP_CREATE_IGNORE_RQ_OVERFLOW) != 0) queue.room = boundless;
}

void open(ReceiveQueue &queue, const mlx5dv_rwq &of, std::uint32_t max_pieces) {
  queue.buffer = static_cast<std::uint8_t *>(of.buf);
  queue.record = reinterpret_cast<std::uint32_t *>(of.dbrec);
  queue.max_pieces = max_pieces;
  queue.entry_bytes = of.stride;
  queue.mask = of.wqe_cnt - 1;
  queue.room = of.wqe_cnt;
  queue.ids = make_zeros<std::uint64_t>(of.wqe_cnt);
}

void open(SharedQueue &queue, const mlx5dv_srq &of, std::uint32_t max_wr,
          std::uint32_t max_pieces) {
  queue.buffer = static_cast<std::uint8_t *>(of.buf);
  queue.record = reinterpret_cast<std::uint32_t *>(of.dbrec);
  queue.entry_bytes = of.stride;
  queue.max_pieces = max_pieces;
  queue.post = post_for(queue);
  queue.counters->head = static_cast<std::int32_t>(of.head);
  queue.counters->tail = static_cast<std::int32_t>(of.tail);
  *queue.counter = 0;
  // One more entry than was granted, so that a full list differs from an empty one.
  queue.ids = make_zeros<std::uint64_t>(std::max(std::bit_ceil(max_wr + 1), of.tail + 1));
}

void close(CompletionQueue &queue) noexcept {
  queue.entries = nothing.entry;
  queue.mask = 0;
  queue.size = 1;
  queue.record = nothing.record;
  queue.page = nothing.page;
}

bool is_closed(const CompletionQueue &queue) noexcept { return queue.entries == nothing.entry; }

}  // namespace ibvexp::engine
