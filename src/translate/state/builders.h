// The builder lane of posting: queue pairs whose work requests go through
// libmlx5's builders (ibv_wr_*, mlx5dv_wr_*) instead of ibv_post_send(). DC
// initiators have no other way, and requests that rdma-core has no builder for are
// posted as raw entries among the others.
//
// A queue pair is in the lane from its creation on (open.h) or never; all its
// requests then pass here, from both doors, because the fill of its send queue is
// counted (work_log.h). hooks.h puts this under the base verbs.
//
//   open.h        creation, and which queue pairs need the lane
//   post.h        posting a chain
//   builder.h     one basic request
//   special.h     one raw request: add a family there
//   raw_wqe.h     the entry that such a request becomes
#pragma once

#include "translate/state/work_log.h"

#include <infiniband/mlx5dv.h>

#include <cstdint>

namespace ibvexp::lane {

struct Lane {
  ibv_qp_ex *ex = nullptr;  // null: not in the lane
  mlx5dv_qp_ex *dv = nullptr;
  void (*start)(ibv_qp_ex *) = nullptr;
  bool raw = false;        // takes raw entries (rdma-core v36 and later)
  bool initiator = false;  // of the DC transport
  bool signal_all = false;
  bool no_windows = false;  // MLX5_SHUT_UP_MW
  // The next request must wait for a key change, as libmlx5's own fence does not
  // pass from builders to raw entries or back. Under the lock of the send queue.
  bool fence_raw = false;
  bool fence_built = false;
  std::uint32_t max_send_sge = 0;
  std::uint32_t max_inline_data = 0;
  std::uint32_t max_umr_pieces = 0;  // of a key change that carries them; 0: takes none
  WorkLog log;

  // False also for a queue pair that another has replaced unseen, at the
  // same address: it has no builders, or those of another state.
  bool active() const { return ex != nullptr && ex->wr_start == start; }

  std::uint32_t qp_num() const { return ex->qp_base.qp_num; }
  ibv_qp_type qp_type() const { return ex->qp_base.qp_type; }
};

}  // namespace ibvexp::lane
