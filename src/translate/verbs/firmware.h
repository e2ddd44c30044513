// Firmware commands (DEVX) that have no verb, most of them for objects that rdma-core created.
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cstdint>

#include "base/result.h"

namespace ibvexp::translate {

// MODIFY_CQ: `ignored` lets the device overwrite unread completions. number: the CQ's (cqn).
Result<void> change_overrun(ibv_cq *cq, std::uint32_t number, bool ignored);

// QUERY_DCT. The states have the numbers of IBV_EXP_DCT_STATE_*.
struct TargetFacts {
  std::uint8_t state;
  std::uint64_t access_key;
  std::uint32_t violations;  // requests with another key
};
Result<TargetFacts> query_target(ibv_qp *target);

// CREATE_DCT: a target without an object of rdma-core, on rdma-core's CQ, SRQ and PD. In RTR.
struct TargetRequest {
  std::uint32_t cqn;
  std::uint32_t srqn;
  std::uint32_t pdn;
  std::uint32_t user_index;  // of its completions
  std::uint32_t atomic_mode;
  std::uint64_t access_key;
  bool scatters;  // small messages into completions of 128 bytes
};
struct CommandTarget {
  mlx5dv_devx_obj *object = nullptr;  // the caller destroys it (mlx5dv_devx_obj_destroy())
  std::uint32_t number = 0;
};
Result<CommandTarget> make_target(ibv_context *context, const TargetRequest &request,
                                  const ibv_qp_attr &attr);
Result<TargetFacts> query_target(mlx5dv_devx_obj *target, std::uint32_t number);

// ARM_DCT_FOR_KEY_VIOLATION: one event for the next request with another key.
Result<void> arm_target(mlx5dv_devx_obj *target, std::uint32_t number);

}  // namespace ibvexp::translate
