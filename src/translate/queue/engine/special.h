// Requests that become raw entries. A family has one function, which judges the
// request and writes its entry behind the control segment, before the send queue
// is locked; nothing of it is posted unless it returns 0.
#pragma once

#include "translate/queue/lane/raw_wqe.h"
#include "translate/state/lane.h"

#include <infiniband/verbs_exp.h>

namespace ibvexp::lane {

// What decides about such a request on a queue pair.
struct Poster {
  ibv_context *context = nullptr;
  ibv_qp_type type = IBV_QPT_RC;
  std::uint32_t number = 0;
  bool initiator = false;  // of the DC transport
  bool no_windows = false;
  std::uint32_t max_send_sge = 0;
  std::uint32_t max_bytes = 0;       // of an entry
  std::uint32_t max_umr_pieces = 0;  // of a key change that carries them; 0: takes none
};
Poster poster_of(const Lane &lane);

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
int append_address(const Poster &poster, const ibv_exp_send_wr &wr, RawWqe &wqe);

// Whether a request binds a window of type 1, for which there is no builder.
bool binds_type_1(const ibv_exp_send_wr &wr);

// Families.
int write_masked_atomic(const Poster &poster, const ibv_exp_send_wr &wr, Special &special);
int write_umr(const Poster &poster, const ibv_exp_send_wr &wr, Special &special);
int write_nop(const Poster &poster, const ibv_exp_send_wr &wr, Special &special);
int write_window(const Poster &poster, const ibv_exp_send_wr &wr, Special &special);
int write_local_invalidate(const Poster &poster, const ibv_exp_send_wr &wr, Special &special);

}  // namespace ibvexp::lane
