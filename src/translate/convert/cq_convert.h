// Completion queues: what is changed of them, legacy to modern. No calls.
#pragma once

#include <infiniband/verbs_exp.h>

namespace ibvexp::translate {

// (modern <- exp) Moderation is all that both sides know; microseconds on both.
constexpr ibv_modify_cq_attr to_modern(const ibv_exp_cq_attr &from) {
  ibv_modify_cq_attr to{};
  to.attr_mask = IBV_CQ_ATTR_MODERATE;
  to.moderate.cq_count = from.moderation.cq_count;
  to.moderate.cq_period = from.moderation.cq_period;
  return to;
}

}  // namespace ibvexp::translate
