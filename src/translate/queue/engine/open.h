// The queues of an object of rdma-core's, as the engine drives them: from what
// mlx5dv_init_obj() says, with counters at zero. From then on libmlx5's data path
// must not touch the object. Throw bad_alloc.
#pragma once

#include <infiniband/mlx5dv.h>

#include "translate/queue/engine/completion_queue.h"

namespace ibvexp::engine {

// What else has to be known of a queue pair.
struct QpFacts {
  Transport transport = Transport::rc;
  ibv_qp_cap granted{};
  std::uint32_t number = 0;  // the queue pair's
  bool all_signaled = false;
  bool single_threaded = false;
  bool atomics = true;        // the device has them
  bool checksums = false;     // of frames: it fills them in
  std::uint32_t channel = 0;  // IBV_EXP_QP_CREATE_* of cross-channel
};

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
inline constexpr Controls controls;

inline void set_threads(Lock &lock, bool single) {
  if (single) lock.set_single_threaded();
}

// Cross-channel.
void manage(SendQueue &queue, std::uint32_t channel);
void manage(ReceiveQueue &queue, std::uint32_t channel);

// Inline, so that the facts stay in registers.
[[gnu::always_inline]] inline void open(SendQueue &queue, const mlx5dv_qp &of,
                                        const QpFacts &facts) {
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
  if (facts.channel != 0) [[unlikely]]
    manage(queue, facts.channel);
  queue.select(false);
}

[[gnu::always_inline]] inline void open(ReceiveQueue &queue, const mlx5dv_qp &of,
                                        const QpFacts &facts) {
  queue.record = reinterpret_cast<std::uint32_t *>(of.dbrec);
  queue.max_pieces = facts.granted.max_recv_sge;
  set_threads(queue.lock, facts.single_threaded);
  if (of.rq.wqe_cnt == 0) return;
  queue.buffer = static_cast<std::uint8_t *>(of.rq.buf);
  queue.entry_bytes = of.rq.stride;
  queue.mask = of.rq.wqe_cnt - 1;
  queue.room = of.rq.wqe_cnt;
  if (facts.channel != 0) [[unlikely]]
    manage(queue, facts.channel);
  queue.ids = make_zeros<std::uint64_t>(of.rq.wqe_cnt);
}

void open(ReceiveQueue &queue, const mlx5dv_rwq &of, std::uint32_t max_pieces);
void open(SharedQueue &queue, const mlx5dv_srq &of, std::uint32_t max_wr, std::uint32_t max_pieces);
[[gnu::always_inline]] inline void open(CompletionQueue &queue, const mlx5dv_cq &of) {
  queue.entries = static_cast<std::uint8_t *>(of.buf) + (of.cqe_size - cqe_bytes);
  queue.mask = of.cqe_cnt - 1;
  queue.size = of.cqe_cnt;
  queue.entry_bytes = of.cqe_size;
  queue.record = reinterpret_cast<std::uint32_t *>(of.dbrec);
  queue.arm_tail = std::uint64_t{be(of.cqn)} << 32;
  queue.page = static_cast<std::uint8_t *>(of.cq_uar);
  queue.last = no_endpoint();
}

// The ring goes: who is late with the queue finds nothing in it, until open().
void close(CompletionQueue &queue) noexcept;
bool is_closed(const CompletionQueue &queue) noexcept;

}  // namespace ibvexp::engine
