// Binding a memory window of type 1. libmlx5 has a builder for type 2 only, and its
// own ibv_bind_mw() would not be counted.
#include "translate/queue/lane/special.h"

#include "translate/queue/lane/key_entry.h"
#include "translate/queue/lane/umr_layout.h"

#include <cerrno>

namespace ibvexp::lane {

int write_window(const Lane &lane, const ibv_exp_send_wr &wr, Special &special) {
  const auto &bind = wr.bind_mw;
  if (lane.no_windows) return EINVAL;
  if (lane.qp_type() != IBV_QPT_RC && lane.qp_type() != IBV_QPT_UC) return EINVAL;
  if (bind.bind_info.length != 0 && bind.bind_info.mr == nullptr) return EINVAL;
  if (bind.bind_info.length > largest_piece) return EOPNOTSUPP;

  RawWqe &wqe = special.wqe;
  // The new tag is in the context, the entry is for the window as it is.
  auto [change, context] = begin_key_entry(wqe, bind.mw->rkey);
  context.qpn_mkey = htobe32(0xffffff00 | (bind.rkey & 0xff));
  special.meaning = {IBV_EXP_WC_BIND_MW, 0};
  special.fence = true;
  change.flags = MLX5_WQE_UMR_CTRL_FLAG_INLINE | MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET;
  change.mkey_mask = htobe64(MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE | MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY);
  if (bind.bind_info.length == 0) {
    context.free = MLX5_WQE_MKEY_CONTEXT_FREE;
    return 0;
  }
  change.mkey_mask |= htobe64(
      MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN | MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR |
      MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE |
      MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ |
      MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE | MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC);
  const UmrLayout layout{1, bind.bind_info.length};
  change.klm_octowords = htobe16(static_cast<std::uint16_t>(layout.padded_units()));
  context.access_flags = static_cast<std::uint8_t>(key_rights(bind.bind_info.exp_mw_access_flags) &
                                                   ~MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_READ);
  context.start_addr = htobe64(bind.bind_info.addr);
  context.len = htobe64(bind.bind_info.length);
  auto &piece = *static_cast<mlx5_wqe_umr_klm_seg *>(wqe.append(layout.bytes()));
  piece.byte_count = htobe32(bind.bind_info.length == largest_piece
                                 ? 0
                                 : static_cast<std::uint32_t>(bind.bind_info.length));
  piece.mkey = htobe32(bind.bind_info.mr->lkey);
  piece.address = htobe64(bind.bind_info.addr);
  return 0;
}

}  // namespace ibvexp::lane
