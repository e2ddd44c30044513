// The completion queues and the shared receive queue of a new queue pair.
// rdma-core follows null pointers here, and the kernel takes the number of
// another context's object for one of its own.
#pragma once

#include <infiniband/verbs_exp.h>

#include "trace/diagnose.h"
#include "translate/queue/front.h"
#include "translate/verbs/xrc_srq.h"

namespace ibvexp::translate {

// rdma-core's objects, of which any may be null. The caller's structure keeps the program's: other
// threads may read the same one.
struct QpQueues {
  ibv_cq *send_cq, *recv_cq;
  ibv_srq *srq;

  template <class Attr>
  static QpQueues of(const Attr &attr) {
    return {queue::behind(attr.send_cq), queue::behind(attr.recv_cq), queue::behind(attr.srq)};
  }
};

// Attr: ibv_exp_qp_init_attr, or the ibv_qp_init_attr of the base verb.
template <class Attr>
Result<void> check_queues(EntryId entry, const ibv_context *context, const Attr &attr,
                          const QpQueues &queues) {
  const bool target = attr.qp_type == IBV_QPT_XRC_RECV;
  bool scaling = false;
  if constexpr (requires { attr.rx_hash_conf; })
    scaling = (attr.comp_mask & IBV_EXP_QP_INIT_ATTR_RX_HASH) != 0;
  // Initiators that receive nothing.
  const bool sends_only = attr.qp_type == IBV_QPT_XRC_SEND || attr.qp_type == IBV_EXP_QPT_DC_INI;
  if (!target && !scaling) {
    if (queues.send_cq == nullptr) return invalid(entry, "send_cq", 0, "must not be null");
    if (queues.recv_cq == nullptr && !sends_only)
      return invalid(entry, "recv_cq", 0, "must not be null");
  }
  if (attr.recv_cq != nullptr && queues.recv_cq == nullptr)
    return invalid(entry, "recv_cq", 0, "destroyed before");
  if (attr.srq != nullptr && queues.srq == nullptr)
    return invalid(entry, "srq", 0, "destroyed before");
  if (queues.send_cq != nullptr && queues.send_cq->context != context)
    return invalid(entry, "send_cq", 0, "of another context");
  if (queues.recv_cq != nullptr && queues.recv_cq->context != context)
    return invalid(entry, "recv_cq", 0, "of another context");
  if (queues.srq != nullptr && queues.srq->context != context)
    return invalid(entry, "srq", 0, "of another context");
  if (queues.srq != nullptr && is_legacy(queues.srq))
    return invalid(entry, "srq", queues.srq->handle, "senders name a queue of XRC, not receivers");
  return {};
}

}  // namespace ibvexp::translate
