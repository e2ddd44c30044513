// Requests that change keys, masked atomics and no-operations. A kind has one function, which
// judges the request and makes an image of its entry; nothing of it is posted unless it returns 0.
#pragma once

#include <infiniband/verbs_exp.h>

#include "translate/queue/engine/raw_wqe.h"

namespace ibvexp::engine {

// What decides about such a request on a queue pair.
struct PostingQp {
  ibv_context *context = nullptr;
  ibv_qp_type type = IBV_QPT_RC;
  std::uint32_t number = 0;
  bool initiator = false;  // of the DC transport
  std::uint32_t max_send_sge = 0;
  std::uint32_t max_bytes = 0;       // of an entry
  std::uint32_t max_umr_pieces = 0;  // of a key change that carries them; 0: takes none
};

struct Special {
  RawWqe wqe;
  std::uint32_t completion_opcode = IBV_EXP_WC_SEND;
  bool fence = false;  // the next request waits until this one has taken effect
};

// On a DC initiator: the destination, behind the control segment. Nothing on
// other queue pairs. 0 or EINVAL.
int append_address(const PostingQp &qp, const ibv_exp_send_wr &wr, RawWqe &wqe);

int write_masked_atomic(const PostingQp &qp, const ibv_exp_send_wr &wr, Special &special);
int write_umr(const PostingQp &qp, const ibv_exp_send_wr &wr, Special &special);
int write_nop(const PostingQp &qp, const ibv_exp_send_wr &wr, Special &special);

}  // namespace ibvexp::engine
