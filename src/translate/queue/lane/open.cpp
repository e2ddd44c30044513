#include "translate/queue/lane/open.h"

#include "base/real.h"
#include "table/options.h"
#include "translate/convert/legacy_grants.h"
#include "translate/convert/room.h"

#include <algorithm>
#include <cerrno>

namespace ibvexp::lane {

namespace {

// Everything that libmlx5 has a builder for. Its size computation starts from the
// same set when none is given, so nothing changes in what is granted.
std::uint64_t operations(ibv_qp_type type, bool atomics) {
  constexpr std::uint64_t sends = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
  constexpr std::uint64_t writes = sends | IBV_QP_EX_WITH_SEND_WITH_INV |
                                   IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                   IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;
  switch (type) {
    case IBV_QPT_UD: return sends;
    case IBV_QPT_UC: return writes;
    case IBV_QPT_RC:
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_DRIVER:
      return writes | IBV_QP_EX_WITH_RDMA_READ |
             (atomics ? std::uint64_t{IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                                      IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD}
                      : 0);
    default: return 0;
  }
}

bool on(Beyond b) { return switched_on(b) && info(b).status == SwitchStatus::done; }

}  // namespace

Need need(ibv_context *context, ibv_qp_type type, std::uint32_t raw_bytes) {
  if (type == IBV_QPT_DRIVER) return Need::required;
  if (operations(type, true) == 0 || !mlx5dv_is_supported(context->device)) return Need::none;
  if (raw_bytes != 0) return Need::required;
  if (on(Beyond::nop)) return Need::wanted;
  if (on(Beyond::masked_atomics) && type == IBV_QPT_RC) return Need::wanted;
  return Need::none;
}

ibv_qp *create(ContextState &state, translate::ModernQpInit &modern, Need need,
               std::uint32_t raw_bytes, Operations reckoned) {
  const bool raw = takes_raw_entries();
  if (!raw && (need == Need::wanted || raw_bytes != 0)) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  const ibv_qp_type type = modern.attr.qp_type;
  translate::ModernQpInit asked = modern;
  const bool atomics = state.device().atomic_cap != IBV_ATOMIC_NONE;
  asked.attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  asked.attr.send_ops_flags =
      reckoned == Operations::lean ? lean_operations(type) : operations(type, atomics);
  asked.attr.cap.max_inline_data =
      std::max(asked.attr.cap.max_inline_data, inline_data_for(type, raw_bytes));
  if (raw) {
    asked.dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
    asked.dv.send_ops_flags = MLX5DV_QP_EX_WITH_RAW_WQE;
  }
  // libmlx5 does not know where the answer of a masked atomic goes if it comes in
  // the completion.
  if (on(Beyond::masked_atomics) && type == IBV_QPT_RC) {
    asked.dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
    asked.dv.create_flags |= MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE;
  }

  ibv_qp *qp = real().mlx5dv_create_qp(state.context, &asked.attr, &asked.dv);
  if (qp == nullptr && errno == EOPNOTSUPP && raw) {
    // No raw entries for this type, perhaps.
    if (need == Need::wanted) return nullptr;
    if (raw_bytes == 0) {
      asked.dv.comp_mask &= ~std::uint64_t{MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS};
      qp = real().mlx5dv_create_qp(state.context, &asked.attr, &asked.dv);
    }
  }
  if (qp != nullptr) modern = asked;
  return qp;
}

void enter(Lane &lane, ibv_qp *qp, const translate::ModernQpInit &modern) {
  lane.ex = nullptr;
  if (!is_for(modern)) return;
  ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
  if (ex == nullptr) return;
  lane.log.open(modern.attr.cap.max_send_wr);
  lane.dv = mlx5dv_qp_ex_from_ibv_qp_ex(ex);
  lane.start = ex->wr_start;
  lane.raw = (modern.dv.comp_mask & MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS) != 0;
  lane.initiator = qp->qp_type == IBV_QPT_DRIVER;
  lane.signal_all = modern.attr.sq_sig_all != 0;
  lane.fence_raw = lane.fence_built = false;
  lane.max_send_sge = modern.attr.cap.max_send_sge;
  lane.max_inline_data =
      std::min(modern.attr.cap.max_inline_data, translate::largest_inline_data(qp->qp_type));
  lane.max_umr_pieces = lane.raw ? modern.max_umr_pieces : 0;
  lane.ex = ex;
}

}  // namespace ibvexp::lane
