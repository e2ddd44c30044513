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
  Origins(const ContextState &state, const CqState *own)
      : qps_(state.qps), own_(own != nullptr && own->has_raw ? own : nullptr) {}

  [[gnu::always_inline]] Origin find(std::uint32_t number, ibv_wc_status status,
                                     ibv_wc_opcode opcode) {
    if (number != number_) {
      number_ = number;
      origin_ = of(qps_.find(number));
    }
    if (own_ != nullptr && status == IBV_WC_SUCCESS && translate::is_receive(opcode)) [[unlikely]]
      return of_receive(qps_, *own_, number);
    return origin_;
  }

 private:
  static Origin of(const QpState *known) {
    if (known == nullptr) return {};
    return {known->shown.load(std::memory_order_relaxed), known->srq, known->dct};
  }
  // The number may be the flow tag of a frame. It is one unless a queue pair of
  // that number receives into this CQ, and no frames.
  [[gnu::noinline]] static Origin of_receive(const NumberTable<QpState> &qps, const CqState &own,
                                             std::uint32_t number) {
    const QpState *const known = qps.find(number);
    if (known != nullptr && !known->raw && known->recv_cq == own.cq) return of(known);
    return {own.raw_qp.load(std::memory_order_relaxed), nullptr, nullptr};
  }

  const NumberTable<QpState> &qps_;
  const CqState *own_;
  std::uint32_t number_ = ~0u;  // no queue pair has it
  Origin origin_{};
};

}  // namespace ibvexp::native
