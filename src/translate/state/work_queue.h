// Receive work queues and indirection tables that programs hold. The legacy
// structures differ from rdma-core's in layout and members: each is ours, with the
// modern object behind it.
#pragma once

#include <infiniband/verbs_exp.h>

namespace ibvexp::queue {
struct WqFront;
}

namespace ibvexp::translate {

// What ibv_exp_create_wq() returns. wq_num, state and handle are kept current.
struct WorkQueue : ibv_exp_wq {
  ibv_wq *real;
  ibv_exp_wq_mp_rq strides;  // of a multi-packet queue
  bool multi_packet;
  queue::WqFront *front;  // what the program holds instead, if it does
};

struct IndirectionTable : ibv_exp_rwq_ind_table {
  ibv_rwq_ind_table *real;
};

}  // namespace ibvexp::translate
