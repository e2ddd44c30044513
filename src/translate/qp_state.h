// What posting and polling have to know about a queue pair.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <vector>

namespace ibvexp {

struct QpState {
  std::atomic<ibv_qp *> qp{nullptr};
  ibv_srq *srq = nullptr;
  std::uint32_t max_inline_data = 0;  // granted
  bool atomics = false;               // the device has them
};

// States of one context. Their memory stays until the pool goes; a state that
// was given back is the next one handed out. Serialised by the owner.
class QpPool {
 public:
  QpState &take() {
    if (free_.empty()) {
      // Room for its return first: giving back may not throw.
      free_.reserve(all_.size() + 1);
      return all_.emplace_back();
    }
    QpState &state = *free_.back();
    free_.pop_back();
    return state;
  }

  void give_back(QpState &state) noexcept {
    state.qp.store(nullptr, std::memory_order_relaxed);
    free_.push_back(&state);
  }

 private:
  std::deque<QpState> all_;  // addresses stay
  std::vector<QpState *> free_;
};

}  // namespace ibvexp
