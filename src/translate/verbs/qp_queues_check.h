// The completion queues and the shared receive queue of a new queue pair.
// rdma-core follows null pointers here, and the kernel takes the number of
// another context's object for one of its own.
#pragma once

#include <infiniband/verbs_exp.h>

#include "trace/diagnose.h"
#include "translate/verbs/xrc_srq.h"

namespace ibvexp::translate {

// Attr: ibv_exp_qp_init_attr, or the ibv_qp_init_attr of the base verb.
template <class Attr>
Result<void> check_queues(EntryId entry, const ibv_context *context, const Attr &attr) {
  const bool target = attr.qp_type == IBV_QPT_XRC_RECV;
  bool scaling = false;
  if constexpr (requires { attr.rx_hash_conf; })
    scaling = (attr.comp_mask & IBV_EXP_QP_INIT_ATTR_RX_HASH) != 0;
  // Initiators that receive nothing.
  const bool sends_only = attr.qp_type == IBV_QPT_XRC_SEND || attr.qp_type == IBV_EXP_QPT_DC_INI;
  if (!target && !scaling) {
    if (attr.send_cq == nullptr) return invalid(entry, "send_cq", 0, "must not be null");
    if (attr.recv_cq == nullptr && !sends_only)
      return invalid(entry, "recv_cq", 0, "must not be null");
  }
  if (attr.send_cq != nullptr && attr.send_cq->context != context)
    return invalid(entry, "send_cq", 0, "of another context");
  if (attr.recv_cq != nullptr && attr.recv_cq->context != context)
    return invalid(entry, "recv_cq", 0, "of another context");
  if (attr.srq != nullptr && attr.srq->context != context)
    return invalid(entry, "srq", 0, "of another context");
  if (attr.srq != nullptr && is_legacy(attr.srq))
    return invalid(entry, "srq", attr.srq->handle, "senders name a queue of XRC, not receivers");
  return {};
}

}  // namespace ibvexp::translate
