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

// By the flags of a request: as they are, and of a queue that signals all.
struct Controls {
  std::uint8_t of[2][8] = {};
  constexpr Controls() {
    for (unsigned flags = 0; flags < 8; ++flags) {
      of[0][flags] = control_flags(flags);
      of[1][flags] = control_flags(flags | IBV_SEND_SIGNALED);
    }
  }
};
constexpr Controls controls;

void set_threads(Lock &lock, bool single) {
  if (single) lock.set_single_threaded();
}

}  // namespace

void open(SendQueue &queue, const mlx5dv_qp &of, const QpFacts &facts) {
  queue.transport = facts.transport;
  queue.number = facts.number << 8;
  std::memcpy(queue.control, controls.of[facts.all_signaled], sizeof(queue.control));
  queue.checksums = facts.checksums;
  queue.atomics = facts.atomics;
  queue.max_pieces = facts.granted.max_send_sge;
  queue.max_inline = facts.granted.max_inline_data;
  queue.doorbell.page = static_cast<std::uint8_t *>(of.bf.reg);
  queue.doorbell.record = reinterpret_cast<std::uint32_t *>(of.dbrec + 1);
  set_threads(queue.lock, facts.single_threaded);
  if (of.sq.wqe_cnt != 0) {
    queue.mask = of.sq.wqe_cnt - 1;
    queue.begin = static_cast<std::uint8_t *>(of.sq.buf);
    queue.end = queue.begin + std::size_t{of.sq.wqe_cnt} * block_bytes;
    queue.sent = make_zeros<Sent>(of.sq.wqe_cnt);
    // libmlx5 grants what it counts with: entries of the largest size fit that often.
    queue.max_posted = facts.granted.max_send_wr;
    queue.max_blocks = queue.max_posted != 0 ? of.sq.wqe_cnt / queue.max_posted : 0;
  }
  queue.managed.is_master = (facts.channel & IBV_EXP_QP_CREATE_CROSS_CHANNEL) != 0;
  queue.managed.is_slave = (facts.channel & IBV_EXP_QP_CREATE_MANAGED_SEND) != 0;
  if (queue.managed.is_slave) queue.doorbell = {unread.page, &unread.record};
  if ((facts.channel & IBV_EXP_QP_CREATE_IGNORE_SQ_OVERFLOW) != 0) queue.max_posted = boundless;
  queue.select(false);
}

void open(ReceiveQueue &queue, const mlx5dv_qp &of, const QpFacts &facts) {
  queue.record = reinterpret_cast<std::uint32_t *>(of.dbrec);
  queue.max_pieces = facts.granted.max_recv_sge;
  set_threads(queue.lock, facts.single_threaded);
  if (of.rq.wqe_cnt == 0) return;
  queue.buffer = static_cast<std::uint8_t *>(of.rq.buf);
  queue.entry_bytes = of.rq.stride;
  queue.mask = of.rq.wqe_cnt - 1;
  queue.room = of.rq.wqe_cnt;
  queue.managed.is_slave = (facts.channel & IBV_EXP_QP_CREATE_MANAGED_RECV) != 0;
  if (queue.managed.is_slave) queue.record = &unread.record;
  if ((facts.channel & IBV_EXP_QP_CREATE_IGNORE_RQ_OVERFLOW) != 0) queue.room = boundless;
  queue.ids = make_zeros<std::uint64_t>(of.rq.wqe_cnt);
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

void open(CompletionQueue &queue, const mlx5dv_cq &of) {
  queue.entries = static_cast<std::uint8_t *>(of.buf) + (of.cqe_size - cqe_bytes);
  queue.mask = of.cqe_cnt - 1;
  queue.size = of.cqe_cnt;
  queue.entry_bytes = of.cqe_size;
  queue.record = reinterpret_cast<std::uint32_t *>(of.dbrec);
  queue.arm_tail = std::uint64_t{be(of.cqn)} << 32;
  queue.page = static_cast<std::uint8_t *>(of.cq_uar);
  queue.last = no_endpoint();
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
