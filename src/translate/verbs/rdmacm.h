// Functions of the legacy librdmacm that rdma-core's does not have, or has under another version.
#pragma once

#include "base/result.h"

struct ibv_exp_qp_init_attr;
struct ibv_qp_attr;
struct rdma_cm_id;

namespace ibvexp::translate {

// rdma_create_qp_exp: as rdma_create_qp_ex(), with experimental attributes. The identifier
// owns the queue pair, and completion queues that were created for it. Its
// context, if it has one, is attached.
Result<void> create_qp_exp(rdma_cm_id *id, ibv_exp_qp_init_attr *attr);

Result<void> establish(rdma_cm_id *id);
Result<void> init_qp_attr(rdma_cm_id *id, ibv_qp_attr *attr, int *mask);

}  // namespace ibvexp::translate
