#include "translate/queue/native/hooks.h"

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs_exp.h>

#include <cerrno>

#include "base/log.h"
#include "translate/queue/native/builders.h"
#include "translate/queue/operation.h"

namespace ibvexp::native {

namespace {

QpState *find_builders(ContextState *state, const ibv_qp *qp) {
  QpState *known = find_qp(state, qp);
  return known != nullptr && known->builders.active() ? known : nullptr;
}

int post_send(ibv_qp *qp, ibv_send_wr *wr, ibv_send_wr **bad_wr) {
  ContextState *state = find_state(qp->context);
  if (state == nullptr) [[unlikely]]
    return EINVAL;  // being closed
  QpState *known = find_builders(state, qp);
  if (known == nullptr) return state->native.post_send(qp, wr, bad_wr);
  ibv_send_wr *bad = nullptr;
  const int error = build_chain(known->builders, wr, bad);
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

// There is no builder for windows of type 1, and libmlx5's own entry would not be counted.
int bind_mw(ibv_qp *qp, ibv_mw *mw, ibv_mw_bind *bind) {
  ContextState *state = find_state(qp->context);
  if (state == nullptr) [[unlikely]]
    return EINVAL;
  if (find_builders(state, qp) == nullptr) return state->native.bind_mw(qp, mw, bind);
  log(LogLevel::warn, "ibv_bind_mw: QP %#x: libmlx5's builders bind windows of type 2 only",
      qp->qp_num);
  return errno = ENOTSUP;
}

}  // namespace

void install_hooks(ContextState &state) noexcept {
  if (state.hooked) return;
  state.hooked = true;
  ibv_context_ops &ops = state.operations();
  replace(ops.poll_cq, &poll_cq);
  replace(ops.bind_mw, &bind_mw);
  replace(ops.post_send, &post_send);
}

void settle(const ContextState &state, ibv_wc &wc) noexcept {
  QpState *known = state.qps.find(wc.qp_num);
  if (known == nullptr || known->builders.ex == nullptr) return;
  const bool success = wc.status == IBV_WC_SUCCESS;
  // The opcode of a failed request is not written.
  if (success && (wc.opcode == IBV_WC_RECV || wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM)) return;
  known->builders.log.complete(wc.wr_id, success);
  if (success && int{wc.opcode} == MLX5DV_WC_UMR) {
    wc.opcode = static_cast<ibv_wc_opcode>(IBV_EXP_WC_UMR);
    wc.byte_len = 0;
  }
}

}  // namespace ibvexp::native
