// What polling has to know about the completion queues that need more than the
// provider's poll_cq. Most queues have no state.
#pragma once

#include "base/result.h"
#include "base/state_pool.h"

#include <infiniband/verbs_exp.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

namespace ibvexp {

struct ContextState;
struct CqState;

// As translate::poll_cq; wc_size has been checked.
using CqPoll = Result<int> (*)(ContextState &context, CqState &state, ibv_cq *cq, int num_entries,
                               ibv_exp_wc *wc, std::uint32_t wc_size);

// Where the completions of a queue lie, if it takes its memory from this library
// (cq_memory.h), and what they are to report.
struct CqRing {
  enum class Stamps : std::uint8_t { none, cycles, system_time };

  std::uint8_t *entries = nullptr;
  const __be32 *doorbell = nullptr;  // [0]: entries consumed
  std::uint32_t entry_size = 64;
  Stamps stamps = Stamps::none;
  bool mini_has_hash = false;  // compressed completions: with the hash, not with the checksum
  bool ours = false;           // an extended queue that no program polls as one
};

// What libmlx5 put into a queue for ibv_start_poll(), where the lane stands in
// front of it (lane/extended_poll.h), and what the current completion is to say.
struct ExtendedPoll {
  int (*start_poll)(ibv_cq_ex *, ibv_poll_cq_attr *) = nullptr;
  int (*next_poll)(ibv_cq_ex *) = nullptr;
  ibv_wc_opcode (*read_opcode)(ibv_cq_ex *) = nullptr;
  std::uint32_t (*read_byte_len)(ibv_cq_ex *) = nullptr;
  std::uint32_t (*read_qp_num)(ibv_cq_ex *) = nullptr;
  bool settled = false;  // the members below are set
  ibv_wc_opcode opcode = IBV_WC_SEND;
  std::uint32_t byte_len = 0;
};

struct CqState {
  std::atomic<ibv_cq *> cq{nullptr};

  // Takes the place of the provider's poll_cq when not null.
  std::atomic<CqPoll> poll{nullptr};

  CqRing ring;
  ExtendedPoll extended;

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
    poll.store(nullptr, std::memory_order_relaxed);
    ring = {};
    extended = {};
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
