#include "translate/queue/lane/hooks.h"

#include "translate/queue/lane/post.h"
#include "translate/queue/operation.h"

#include <cerrno>

namespace ibvexp::lane {

namespace {

int post_send(ibv_qp *qp, ibv_send_wr *wr, ibv_send_wr **bad_wr) {
  ContextState *state = find_state(qp->context);
  if (state == nullptr) [[unlikely]]
    return EINVAL;  // being closed
  QpState *known = find_qp(state, qp);
  if (known == nullptr || !known->lane.active()) return state->native.post_send(qp, wr, bad_wr);
  ibv_send_wr *bad = nullptr;
  const int error = post(known->lane, wr, bad);
  if (error != 0) [[unlikely]]
    *bad_wr = bad;
  return error;
}

int poll_cq(ibv_cq *cq, int num_entries, ibv_wc *wc) {
  ContextState *state = find_state(cq->context);
  if (state == nullptr) [[unlikely]]
    return -1;
  const int count = state->native.poll_cq(cq, num_entries, wc);
  for (int i = 0; i < count; ++i) settle(*state, wc[i]);
  return count;
}

// libmlx5's own would add an entry that nobody counts.
int bind_mw(ibv_qp *qp, ibv_mw *mw, ibv_mw_bind *bind) {
  ContextState *state = find_state(qp->context);
  if (state == nullptr) [[unlikely]]
    return EINVAL;
  QpState *known = find_qp(state, qp);
  if (known == nullptr || !known->lane.active()) return state->native.bind_mw(qp, mw, bind);
  if ((bind->bind_info.mw_access_flags & IBV_ACCESS_ZERO_BASED) != 0) return errno = EINVAL;
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = bind->wr_id;
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = bind->send_flags;
  wr.bind_mw.mw = mw;
  wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
  wr.bind_mw.bind_info = bind->bind_info;
  const int error = post(known->lane, &wr, bad);
  if (error == 0) mw->rkey = wr.bind_mw.rkey;
  return error;
}

}  // namespace

void install(ContextState &state) noexcept {
  ibv_context_ops &ops = state.operations();
  // Not by what the context has: directly driven queues may have been put on top.
  if (state.lane_installed) return;
  state.lane_installed = true;
  replace(ops.poll_cq, &poll_cq);
  replace(ops.bind_mw, &bind_mw);
  replace(ops.post_send, &post_send);
}

void settle(const ContextState &state, ibv_wc &wc) noexcept {
  QpState *known = state.qps.find(wc.qp_num);
  if (known == nullptr || known->lane.ex == nullptr) return;
  const bool success = wc.status == IBV_WC_SUCCESS;
  // The opcode of a failed request is not written.
  if (success && (wc.opcode == IBV_WC_RECV || wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM)) return;
  Meaning meaning;
  if (!known->lane.log.complete(wc.wr_id, success, meaning) || !success) return;
  if (meaning.opcode == Meaning::unchanged) return;
  wc.opcode = static_cast<ibv_wc_opcode>(meaning.opcode);
  wc.byte_len = meaning.byte_len;
}

}  // namespace ibvexp::lane
