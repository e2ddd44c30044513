// Commands of mlx5 devices about objects that rdma-core made (DEVX): what has no verb.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "base/result.h"

namespace ibvexp::translate {

// MODIFY_CQ: whether the device may overwrite unread completions. number: the CQ's (cqn).
Result<void> change_overrun(ibv_cq *cq, std::uint32_t number, bool ignored);

// QUERY_DCT. The states have the numbers of IBV_EXP_DCT_STATE_*.
struct TargetFacts {
  std::uint8_t state;
  std::uint64_t access_key;
  std::uint32_t violations;  // requests with another key
};
Result<TargetFacts> query_target(ibv_qp *target);

}  // namespace ibvexp::translate
