// What a new queue pair is asked to be. rdma-core follows null pointers of completion queues and
// shared receive queues, and the kernel takes the number of another context's object for one of its
// own.
#pragma once

#include <infiniband/verbs_exp.h>

#include "trace/diagnose.h"
#include "translate/queue/front.h"
#include "translate/verbs/xrc_srq.h"

namespace ibvexp::translate {

// rdma-core's objects, of which any may be null, and what stands before them. The caller's structure
// keeps the program's: other threads may read the same one.
struct QpQueues {
  queue::Ends ends;
  ibv_cq *send_cq, *recv_cq;
  ibv_srq *srq;

  template <class Attr>
  explicit QpQueues(const Attr &attr)
      : ends(queue::ends_of(attr)),
        send_cq(ends.send != nullptr ? ends.send->own.back : attr.send_cq),
        recv_cq(ends.receive != nullptr ? ends.receive->own.back : attr.recv_cq),
        srq(ends.shared != nullptr ? ends.shared->own.back : attr.srq) {}

  // What has been converted gets rdma-core's objects. It has no SRQ where none is received from,
  // and may complete receives where it completes requests.
  void put_into(ibv_qp_init_attr_ex &modern) {
    modern.send_cq = send_cq;
    if (recv_cq != nullptr) {
      modern.recv_cq = recv_cq;
    } else if (modern.recv_cq != nullptr) {
      modern.recv_cq = send_cq;
      ends.receive = ends.send;
    }
    if (modern.srq != nullptr) modern.srq = srq;
    else ends.shared = nullptr;
  }
};

// Everything that ibv_exp_create_qp() is asked for.
Result<void> check(ContextState &state, const ibv_exp_qp_init_attr &attr, const QpQueues &queues);

// Attr: ibv_exp_qp_init_attr, or the ibv_qp_init_attr of the base verb.
template <class Attr>
[[gnu::always_inline]] inline Result<void> check_queues(EntryId entry, const ibv_context *context,
                                                        const Attr &attr, const QpQueues &queues) {
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
    return invalid(entry, "srq", queues.srq->handle,
                   "an XRC SRQ cannot be attached to a queue pair: senders name it by number");
  return {};
}

}  // namespace ibvexp::translate
