// What posting and polling have to know about a queue pair.
#pragma once

#include "lane/lane.h"
#include "state_pool.h"

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>

namespace ibvexp {

struct QpState {
  std::atomic<ibv_qp *> qp{nullptr};
  ibv_srq *srq = nullptr;
  std::uint32_t max_inline_data = 0;  // granted
  bool atomics = false;               // the device has them
  bool sq_sig_all = false;
  bool raw = false;                   // receives frames
  ibv_cq *recv_cq = nullptr;
  lane::Lane lane;                    // inactive for most

  void retire() noexcept {
    qp.store(nullptr, std::memory_order_relaxed);
    lane.ex = nullptr;
  }
};

using QpPool = StatePool<QpState>;

}  // namespace ibvexp
