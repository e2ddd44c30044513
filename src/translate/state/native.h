// rdma-core's operations of a context whose programs hold objects of ours
// (queue/front.h). The context's own lead to queue/doors.cpp, which finds the object
// behind and calls these.
#pragma once

#include <infiniband/verbs.h>

namespace ibvexp {

struct NativeOperations {
  ibv_context_ops data;  // under hooks of ours
  decltype(verbs_context::create_qp_ex) create_qp_ex;
  decltype(verbs_context::open_qp) open_qp;
  decltype(verbs_context::create_srq_ex) create_srq_ex;
  decltype(verbs_context::get_srq_num) get_srq_num;
  decltype(verbs_context::post_srq_ops) post_srq_ops;
  decltype(verbs_context::create_wq) create_wq;
  decltype(verbs_context::modify_cq) modify_cq;
  decltype(verbs_context::modify_qp_rate_limit) modify_qp_rate_limit;
  decltype(verbs_context::ibv_create_flow) create_flow;
};

}  // namespace ibvexp
