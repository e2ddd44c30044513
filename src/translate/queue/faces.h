// The functions of the interface families, as tables for objects that the engine
// drives: thin faces of it. The structures of version 0 are the fronts of those of
// version 1. An object that such a function is called with is known to be a front.
#pragma once

#include <infiniband/verbs_exp.h>

namespace ibvexp::queue {

struct FaceChoice {
  bool frames = false;   // Ethernet
  bool checked = false;  // arguments and states are checked
};

const ibv_exp_qp_burst_family_v1 *burst_face(const FaceChoice &choice);
const ibv_exp_wq_family *wq_face(const FaceChoice &choice);
const ibv_exp_cq_family_v1 *cq_face(const FaceChoice &choice);

}  // namespace ibvexp::queue
