// Attributes of shared receive queues, legacy to modern. No calls.
#pragma once

#include <infiniband/verbs_exp.h>

namespace ibvexp::translate {

// (modern <- exp) Of an XRC queue, which needs both, completion queue and domain.
inline ibv_srq_init_attr_ex to_modern(const ibv_exp_create_srq_attr &from) {
  ibv_srq_init_attr_ex to{};
  to.srq_context = from.base.srq_context;
  to.attr = from.base.attr;
  to.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
  to.pd = from.pd;
  to.srq_type = IBV_SRQT_BASIC;
  if (from.srq_type == IBV_EXP_SRQT_XRC) {
    to.comp_mask |= IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_XRCD;
    to.srq_type = IBV_SRQT_XRC;
    to.cq = from.cq;
    to.xrcd = from.xrcd;
  }
  return to;
}

}  // namespace ibvexp::translate
