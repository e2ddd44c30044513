#include "exp/identifier.h"

#include <rdma/rdma_cma.h>

#include "exp/attachment.h"
#include "translate/verbs/rdmacm.h"

namespace ibvexp {

Result<void> create_qp_on(rdma_cm_id *id, ibv_exp_qp_init_attr *attr) {
  if (id != nullptr && id->verbs != nullptr)
    if (const auto attached = attach(id->verbs); !attached) return attached.failure();
  return translate::create_qp_exp(id, attr);
}

}  // namespace ibvexp
