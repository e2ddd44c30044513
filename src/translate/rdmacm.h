// What legacy librdmacm had under another version node.
#pragma once

#include "result.h"

struct ibv_qp_attr;
struct rdma_cm_id;

namespace ibvexp::translate {

Result<void> establish(rdma_cm_id *id);
Result<void> init_qp_attr(rdma_cm_id *id, ibv_qp_attr *attr, int *mask);

}  // namespace ibvexp::translate
