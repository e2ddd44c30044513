// Attributes of shared receive queues, legacy to modern. No calls.
#pragma once

#include <infiniband/verbs_exp.h>

namespace ibvexp::translate {

// What the device's manual has for sizes of strides in a shared receive queue, as logarithms.
struct StrideLimits {
  static constexpr std::uint8_t least_count = 3, most_count = 16, least_bytes = 6, most_bytes = 13;
};

// (modern <- exp) An XRC queue needs both, completion queue and domain. How DC targets answer is
// left out: none may receive from a queue that matches tags.
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
  } else if (from.srq_type == IBV_EXP_SRQT_TAG_MATCHING) {
    to.comp_mask |= IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
    to.srq_type = IBV_SRQT_TM;
    to.cq = from.cq;
    to.tm_cap.max_num_tags = from.tm_cap.max_num_tags;
    to.tm_cap.max_ops = from.tm_cap.max_ops;
  }
  return to;
}

// (modern <- exp) Opcodes and flags have the same numbers. next is the caller's to follow.
inline ibv_ops_wr to_modern(const ibv_exp_ops_wr &from) {
  static_assert(int{IBV_EXP_WR_TAG_SYNC} == IBV_WR_TAG_SYNC &&
                int{IBV_EXP_OPS_TM_SYNC} == IBV_OPS_TM_SYNC &&
                int{IBV_EXP_OPS_SIGNALED} == IBV_OPS_SIGNALED);
  ibv_ops_wr to{};
  to.wr_id = from.wr_id;
  to.opcode = static_cast<ibv_ops_wr_opcode>(from.opcode);
  to.flags = from.flags;
  to.tm.unexpected_cnt = from.tm.unexpected_cnt;
  to.tm.handle = from.tm.handle;
  to.tm.add.recv_wr_id = from.tm.add.recv_wr_id;
  to.tm.add.sg_list = from.tm.add.sg_list;
  to.tm.add.num_sge = from.tm.add.num_sge;
  to.tm.add.tag = from.tm.add.tag;
  to.tm.add.mask = from.tm.add.mask;
  return to;
}

}  // namespace ibvexp::translate
