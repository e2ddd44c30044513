// What a program with the private header reads, from what mlx5dv_init_obj() fills
// about the object behind. No calls.
#pragma once

#include <infiniband/mlx5dv.h>

#include "table/options.h"
#include "translate/queue/front.h"

namespace ibvexp::queue {

// What else is known about a queue pair.
struct QpMade {
  ibv_qp_type type{};  // as the program named it; 0: as rdma-core does
  ibv_qp_cap granted{};
  bool signal_all = false;
  bool single_threaded = false;  // and with a doorbell register that no other has
  Ends ends;
  // For the engine, if it is to drive a side.
  Sides by;
  bool windows = true;               // may be bound
  std::uint32_t max_umr_pieces = 0;  // of a key change in an entry
  std::uint16_t max_tso_header = 0;  // bytes
  // IBV_EXP_QP_CREATE_* of cross-channel, and the register that it rings instead of libmlx5's.
  std::uint32_t channel = 0;
  void *page = nullptr;
};

// Calls f with the queues of an object as programs of that layout read them.
template <class Object, class F>
void with_queues(Object &object, ObjectLayout layout, F f) {
  if (layout == ObjectLayout::v4) f(object.v4);
  else f(object.v3);
}

void fill(QpFront &front, const mlx5dv_qp &of, const QpMade &made, ObjectLayout layout) noexcept;

// Without queues of its own: what a receive-side scaling entry shows.
void fill_scaling(QpFront &front, ObjectLayout layout) noexcept;

// Sets the buffer and its size, nothing that counts: also after a resize.
void fill(CqFront &front, const mlx5dv_cq &of) noexcept;

void fill(SrqFront &front, const mlx5dv_srq &of, std::uint32_t max_pieces) noexcept;

// strides: of a multi-packet queue, or null.
void fill(WqFront &front, const mlx5dv_rwq &of, std::uint32_t max_pieces,
          const ibv_exp_wq_mp_rq *strides, ObjectLayout layout) noexcept;

}  // namespace ibvexp::queue
