// ibv_post_send, ibv_post_recv, ibv_poll_cq and ibv_req_notify_cq of a context
// some of whose queues are ours. Base verbs reach them through ibv_context.ops;
// for queues that are not ours they go on to the provider.
#pragma once

#include <infiniband/verbs.h>

namespace ibvexp {
struct ContextState;
}

namespace ibvexp::direct {

// Whether posting to the queue pair has to go through post_send() here.
bool owns_send(const ContextState &state, const ibv_qp *qp) noexcept;

int post_send(ibv_qp *qp, ibv_send_wr *wr, ibv_send_wr **bad_wr);
int post_recv(ibv_qp *qp, ibv_recv_wr *wr, ibv_recv_wr **bad_wr);
int poll_cq(ibv_cq *cq, int num_entries, ibv_wc *wc);
int req_notify_cq(ibv_cq *cq, int solicited_only);

}  // namespace ibvexp::direct
