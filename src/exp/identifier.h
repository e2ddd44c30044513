// Connection identifiers of librdmacm, whose contexts this library may not have
// met: librdmacm opens them on its own.
#pragma once

#include "base/result.h"

struct ibv_exp_qp_init_attr;
struct rdma_cm_id;

namespace ibvexp {

// rdma_create_qp_exp: attaches the identifier's context, if it has one, before the
// verb.
Result<void> create_qp_on(rdma_cm_id *id, ibv_exp_qp_init_attr *attr);

}  // namespace ibvexp
