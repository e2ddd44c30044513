// Shared receive queues of strides (IBV_EXP_CREATE_SRQ_MP_WR), and the reliable connections that
// receive from them. The kernel makes neither, but takes the commands of the device (DEVX). So
// rdma-core makes a basic queue and a queue pair as usual, with rings, records and everything that
// verbs look at, and the device gets an XRQ and a queue pair of commands on the same rings. The
// kernel's own receive nothing and stay in RESET.
#pragma once

#include <infiniband/verbs_exp.h>

#include "base/result.h"
#include "translate/convert/qp_convert.h"
#include "translate/queue/front.h"
#include "translate/queue/on_rings.h"
#include "translate/state/context_state.h"

namespace ibvexp::translate {

// attr is one that verbs/srq.cpp has checked, with IBV_EXP_CREATE_SRQ_MP_WR.
Result<ibv_srq *> create_stride_queue(ContextState &state, ibv_exp_create_srq_attr &attr);

// The device's queue pair on the rings of `made`, which gets its number; the caller's. *page: the
// register that it rings; it belongs to the context. ENOTSUP, logged, for other types than RC, for
// cross-channel and for UMR.
Result<queue::Connection *> connect_to_strides(ContextState &state, ibv_qp *made,
                                               const ModernQpInit &modern, queue::Sides by,
                                               const queue::SrqFront &srq, void **page);

// ibv_modify_qp() and ibv_query_qp() of such a queue pair: 0 or an errno value.
int modify(queue::Connection &connection, ibv_qp *qp, const ibv_qp_attr &attr, int mask);
int query(const queue::Connection &connection, ibv_qp_attr &attr, ibv_qp_init_attr &init);

}  // namespace ibvexp::translate
