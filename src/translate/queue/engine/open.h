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

void open(SendQueue &queue, const mlx5dv_qp &of, const QpFacts &facts);
void open(ReceiveQueue &queue, const mlx5dv_qp &of, const QpFacts &facts);
void open(ReceiveQueue &queue, const mlx5dv_rwq &of, std::uint32_t max_pieces);
void open(SharedQueue &queue, const mlx5dv_srq &of, std::uint32_t max_wr, std::uint32_t max_pieces);
void open(CompletionQueue &queue, const mlx5dv_cq &of);

// The ring goes: who is late with the queue finds nothing in it, until open().
void close(CompletionQueue &queue) noexcept;
bool is_closed(const CompletionQueue &queue) noexcept;

}  // namespace ibvexp::engine
