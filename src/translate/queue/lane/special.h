// Requests that become raw entries. A family has one function, which judges the
// request and writes its entry behind the control segment, before the send queue
// is locked; nothing of it is posted unless it returns 0.
#pragma once

#include "translate/queue/lane/raw_wqe.h"
#include "translate/state/lane.h"

#include <infiniband/verbs_exp.h>

namespace ibvexp::lane {

struct Special {
  RawWqe wqe;
  Meaning meaning;     // of its completion
  bool fence = false;  // the next request waits until this one has taken effect
};

// 0, or an errno value: ENOTSUP (logged) for an opcode that is known and not
// served, EINVAL for an unknown one or a bad request.
int write_special(const Lane &lane, const ibv_exp_send_wr &wr, Special &special);

// On a DC initiator: the destination, behind the control segment. Nothing on
// other queue pairs. 0 or EINVAL.
int append_address(const Lane &lane, const ibv_exp_send_wr &wr, RawWqe &wqe);

// Whether a request binds a window of type 1, for which there is no builder.
bool binds_type_1(const ibv_exp_send_wr &wr);

// Families.
int write_masked_atomic(const Lane &lane, const ibv_exp_send_wr &wr, Special &special);
int write_umr(const Lane &lane, const ibv_exp_send_wr &wr, Special &special);
int write_nop(const Lane &lane, const ibv_exp_send_wr &wr, Special &special);
int write_window(const Lane &lane, const ibv_exp_send_wr &wr, Special &special);

}  // namespace ibvexp::lane
