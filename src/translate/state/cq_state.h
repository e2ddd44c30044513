// What has to be known about completion queues that were created with more than
// ibv_create_cq() has, or take frames. Most queues have no state.
#pragma once

#include <infiniband/verbs_exp.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "base/state_pool.h"

namespace ibvexp {

// What IBV_EXP_CQ_TIMESTAMP asked for.
enum class StampKind : std::uint8_t { none, cycles, system_time };

struct CqState {
  std::atomic<ibv_cq *> cq{nullptr};

  std::uint32_t entry_size = 0;  // bytes, where we chose; 0: where libmlx5 did
  StampKind stamps = StampKind::none;
  bool compressed = false;  // the device may write compressed completions
  bool tags = false;        // completions have the tag

  // Receive completions of raw packets carry a flow tag where others have the
  // number of the queue pair. Whether receive queues of raw packets end here,
  // and the queue pair if there is a single one.
  std::atomic<bool> has_raw{false};
  std::atomic<ibv_qp *> raw_qp{nullptr};

  // Receive queues of raw packets come and go; null stands for a work queue. A
  // queue pair may be named twice, as rdma-core creates one verb by another.
  // Serialised by the owner.
  void add_raw(ibv_qp *qp) {
    if (qp != nullptr && std::find(raw_queues_.begin(), raw_queues_.end(), qp) != raw_queues_.end())
      return;
    raw_queues_.push_back(qp);
    publish();
  }
  void remove_raw(ibv_qp *qp) noexcept {
    const auto at = std::find(raw_queues_.begin(), raw_queues_.end(), qp);
    if (at != raw_queues_.end()) raw_queues_.erase(at);
    publish();
  }

  void retire() noexcept {
    cq.store(nullptr, std::memory_order_relaxed);
    entry_size = 0;
    stamps = StampKind::none;
    compressed = tags = false;
    raw_queues_.clear();
    publish();
  }

 private:
  void publish() noexcept {
    raw_qp.store(raw_queues_.size() == 1 ? raw_queues_.front() : nullptr,
                 std::memory_order_relaxed);
    has_raw.store(!raw_queues_.empty(), std::memory_order_relaxed);
  }

  std::vector<ibv_qp *> raw_queues_;
};

using CqPool = StatePool<CqState>;

}  // namespace ibvexp
