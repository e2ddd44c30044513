// Binding memory windows and invalidating them. libmlx5 has a builder for type 2
// only, and its own ibv_bind_mw() would not be counted.
#include "translate/queue/engine/special.h"

#include "translate/queue/engine/key_entry.h"
#include "translate/queue/umr_layout.h"

#include <cerrno>

namespace ibvexp::engine {

namespace {

bool has_windows(const Poster &poster) {
  return !poster.no_windows && (poster.type == IBV_QPT_RC || poster.type == IBV_QPT_UC ||
                                poster.type == IBV_QPT_XRC_SEND || poster.initiator);
}

// The window of that key goes: of type 2 the device looks that it is this queue
// pair's.
void write_unbinding(std::uint32_t key, std::uint32_t tag, bool of_queue_pair, Special &special) {
  auto [change, context] = begin_key_entry(special.wqe, key);
  context.qpn_mkey = htobe32(0xffffff00 | tag);
  change.flags = MLX5_WQE_UMR_CTRL_FLAG_INLINE | MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET;
  change.mkey_mask = htobe64(MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE | MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY);
  if (of_queue_pair) {
    change.flags |= MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN;
    change.mkey_mask |= htobe64(MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN);
  }
  context.free = MLX5_WQE_MKEY_CONTEXT_FREE;
  special.fence = true;
}

}  // namespace

int write_local_invalidate(const Poster &poster, const ibv_exp_send_wr &wr, Special &special) {
  if (!has_windows(poster)) return EINVAL;
  write_unbinding(wr.ex.invalidate_rkey, 0, true, special);
  special.meaning = IBV_EXP_WC_LOCAL_INV;
  return 0;
}

int write_window(const Poster &poster, const ibv_exp_send_wr &wr, Special &special) {
  const auto &bind = wr.bind_mw;
  if (!has_windows(poster) || bind.mw == nullptr) return EINVAL;
  if (bind.bind_info.length != 0 && bind.bind_info.mr == nullptr) return EINVAL;
  if (bind.bind_info.length > queue::largest_piece) return EOPNOTSUPP;

  const bool second = bind.mw->type == IBV_MW_TYPE_2;
  special.meaning = IBV_EXP_WC_BIND_MW;
  if (bind.bind_info.length == 0) {
    write_unbinding(bind.mw->rkey, bind.rkey & 0xff, second, special);
    return 0;
  }
  RawWqe &wqe = special.wqe;
  // The new tag is in the context, the entry is for the window as it is.
  auto [change, context] = begin_key_entry(wqe, bind.mw->rkey);
  context.qpn_mkey = htobe32((second ? poster.number << 8 : 0xffffff00) | (bind.rkey & 0xff));
  special.fence = true;
  change.flags = MLX5_WQE_UMR_CTRL_FLAG_INLINE | MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET;
  change.mkey_mask = htobe64(
      MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE | MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY |
      MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN | MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR |
      MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE |
      MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ |
      MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE | MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC);
  if (second) {
    change.flags |= MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE;
    change.mkey_mask |= htobe64(MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN);
  }
  const queue::UmrLayout layout{1, bind.bind_info.length};
  change.klm_octowords = htobe16(static_cast<std::uint16_t>(layout.padded_units()));
  context.access_flags =
      static_cast<std::uint8_t>(queue::key_rights(bind.bind_info.exp_mw_access_flags) &
                                ~MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_READ);
  const bool from_zero = (bind.bind_info.exp_mw_access_flags & IBV_EXP_ACCESS_MW_ZERO_BASED) != 0;
  context.start_addr = from_zero ? 0 : htobe64(bind.bind_info.addr);
  context.len = htobe64(bind.bind_info.length);
  auto &piece = *static_cast<mlx5_wqe_umr_klm_seg *>(wqe.append(layout.bytes()));
  piece.byte_count = htobe32(bind.bind_info.length == queue::largest_piece
                                 ? 0
                                 : static_cast<std::uint32_t>(bind.bind_info.length));
  piece.mkey = htobe32(bind.bind_info.mr->lkey);
  piece.address = htobe64(bind.bind_info.addr);
  return 0;
}

}  // namespace ibvexp::engine
