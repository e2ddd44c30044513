// Receive work queues and indirection tables. The legacy structures differ from
// rdma-core's in layout and members: each is ours, with the modern object behind
// it.
#pragma once

#include "base/result.h"

#include <infiniband/verbs_exp.h>

namespace ibvexp::direct {
struct Endpoint;
}

namespace ibvexp::translate {

// What ibv_exp_create_wq() returns. wq_num, state and handle are kept current.
struct WorkQueue : ibv_exp_wq {
  ibv_wq *real;
  ibv_exp_wq_mp_rq strides;  // of a multi-packet queue
  bool multi_packet;
  direct::Endpoint *direct;  // the queue as we drive it, if we do
};

struct IndirectionTable : ibv_exp_rwq_ind_table {
  ibv_rwq_ind_table *real;
};

// Null unless the handle is one of ours and still alive.
WorkQueue *find_wq(const ibv_exp_wq *wq);
IndirectionTable *find_table(const ibv_exp_rwq_ind_table *table);

Result<ibv_exp_wq *> create_wq(ibv_context *context, ibv_exp_wq_init_attr *attr);
Result<void> modify_wq(ibv_exp_wq *wq, ibv_exp_wq_attr *attr);
Result<void> destroy_wq(ibv_exp_wq *wq);

Result<ibv_exp_rwq_ind_table *> create_rwq_ind_table(ibv_context *context,
                                                     ibv_exp_rwq_ind_table_init_attr *attr);
Result<void> destroy_rwq_ind_table(ibv_exp_rwq_ind_table *table);

}  // namespace ibvexp::translate
