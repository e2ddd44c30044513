#include "translate/verbs/dc.h"

#include "base/keep_errno.h"
#include "base/real.h"
#include "translate/queue/lane/open.h"

#include <memory>

namespace ibvexp::translate {

namespace {

void free_pd(ibv_pd *pd) { ibv_dealloc_pd(pd); }
void free_cq(ibv_cq *cq) { real().ibv_destroy_cq(cq); }
void free_qp(ibv_qp *qp) { real().ibv_destroy_qp(qp); }

template <auto release>
struct Release {
  template <class T>
  void operator()(T *object) const {
    release(object);
  }
};
template <class T, auto release>
using Owned = std::unique_ptr<T, Release<release>>;

// 0, or why not.
int create_one(ContextState &state) {
  const Owned<ibv_pd, free_pd> pd(ibv_alloc_pd(state.context));
  const Owned<ibv_cq, free_cq> cq(
      pd != nullptr ? real().ibv_create_cq(state.context, 1, nullptr, nullptr, 0) : nullptr);
  if (cq == nullptr) return errno != 0 ? errno : ENOMEM;
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = cq.get();
  attr.cap.max_send_wr = attr.cap.max_send_sge = 1;
  attr.qp_type = static_cast<ibv_qp_type>(IBV_EXP_QPT_DC_INI);
  ModernQpInit modern = to_modern(attr, pd.get());
  const Owned<ibv_qp, free_qp> qp(
      lane::create(state, modern, lane::Need::required, 0, lane::Operations::all));
  return qp != nullptr ? 0 : errno != 0 ? errno : EINVAL;
}

}  // namespace

bool has_dc(ContextState &state) {
  constexpr int yes = 1, no = 2;
  if (const int known = state.dc.load(std::memory_order_relaxed); known != 0) return known == yes;
  if (!mlx5dv_is_supported(state.context->device)) return false;
  const KeepErrno keep;
  const int error = create_one(state);
  // Other reasons may pass.
  if (error == 0) state.dc = yes;
  else if (error == EOPNOTSUPP || error == EINVAL || error == ENOSYS) state.dc = no;
  return error == 0;
}

}  // namespace ibvexp::translate
