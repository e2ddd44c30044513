// Which queue pair a completion is of.
#pragma once

#include "translate/convert/wc_convert.h"
#include "translate/state/context_state.h"

namespace ibvexp::native {

using translate::Origin;

// For the completions of one batch: one queue pair is behind most of them.
class Origins {
 public:
  // own: the state of the CQ, if it has one.
  Origins(ContextState *state, const CqState *own)
      : state_(state), own_(own != nullptr && own->has_raw ? own : nullptr) {}

  const Origin &find(const ibv_wc &wc) {
    if (wc.qp_num != number_) {
      number_ = wc.qp_num;
      known_ = state_ != nullptr ? state_->qps.find(number_) : nullptr;
      origin_ = {};
      if (known_ != nullptr)
        origin_ = {known_->shown.load(std::memory_order_relaxed), known_->srq, known_->dct};
    }
    if (own_ != nullptr && wc.status == IBV_WC_SUCCESS && translate::is_receive(wc.opcode))
        [[unlikely]]
      return received_ = of_receive();
    return origin_;
  }

 private:
  // The number may be the flow tag of a frame. It is one unless a queue pair of
  // that number receives into this CQ, and no frames.
  Origin of_receive() const {
    if (known_ != nullptr && !known_->raw && known_->recv_cq == own_->cq) return origin_;
    return {own_->raw_qp.load(std::memory_order_relaxed), nullptr, nullptr};
  }

  ContextState *state_;
  const CqState *own_;
  std::uint32_t number_ = ~0u;  // no queue pair has it
  const QpState *known_ = nullptr;
  Origin origin_{}, received_;
};

}  // namespace ibvexp::native
