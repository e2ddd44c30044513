// The functions of the interface families, as tables for queues of ours.
#pragma once

#include <infiniband/verbs_exp.h>

namespace ibvexp::direct {

// What a table has to do.
struct FamilyChoice {
  bool raw_packet = false;   // Ethernet frames
  bool own_receive = false;  // the receive side is ours as well
  bool locked = true;        // several threads may use the object
  bool checked = false;      // arguments and states are checked
};

// The structures of version 0 are the fronts of those of version 1.
const ibv_exp_qp_burst_family_v1 *qp_burst_family(const FamilyChoice &choice);
const ibv_exp_wq_family *wq_family(const FamilyChoice &choice);
const ibv_exp_cq_family_v1 *cq_family(const FamilyChoice &choice);

}  // namespace ibvexp::direct
