// Queue pairs of rdma-core's data path whose requests go through libmlx5's builders
// (ibv_wr_*, mlx5dv_wr_*): DC initiators, which ibv_post_send() does not serve, and those that
// change memory keys. A queue pair is one from its creation on, or never; all its requests
// then pass queue/native/builders.cpp, because the fill of its send queue is counted.
#pragma once

#include <infiniband/mlx5dv.h>

#include <cstdint>

#include "translate/state/work_log.h"

namespace ibvexp::native {

struct Builders {
  ibv_qp_ex *ex = nullptr;  // null: ibv_post_send() serves the queue pair
  mlx5dv_qp_ex *dv = nullptr;
  void (*start)(ibv_qp_ex *) = nullptr;
  bool initiator = false;  // of the DC transport
  bool signal_all = false;
  bool no_windows = false;  // MLX5_SHUT_UP_MW
  std::uint32_t max_send_sge = 0;
  std::uint32_t max_inline_data = 0;
  std::uint32_t max_umr_pieces = 0;  // of a key change; 0: takes none
  WorkLog log;

  // False also for a queue pair that another has replaced unseen, at the
  // same address: it has no builders, or those of another state.
  bool active() const { return ex != nullptr && ex->wr_start == start; }

  // The queue pair was reset.
  void forget() {
    if (ex != nullptr) log.abandon();
  }
};

}  // namespace ibvexp::native
