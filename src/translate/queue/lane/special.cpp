#include "translate/queue/lane/special.h"

#include "translate/convert/wr_convert.h"
#include "translate/queue/send_refusal.h"

#include <cerrno>

namespace ibvexp::lane {

bool binds_type_1(const ibv_exp_send_wr &wr) {
  const int opcode = wr.exp_opcode;
  return (opcode == IBV_EXP_WR_BIND_MW || opcode == translate::bind_mw_3x) &&
         wr.bind_mw.mw != nullptr && wr.bind_mw.mw->type == IBV_MW_TYPE_1;
}

int append_address(const Lane &lane, const ibv_exp_send_wr &wr, RawWqe &wqe) {
  if (!lane.initiator) return 0;
  if (wr.dc.ah == nullptr) return EINVAL;
  mlx5dv_ah ah{};
  mlx5dv_obj object{};
  object.ah.in = wr.dc.ah;
  object.ah.out = &ah;
  if (mlx5dv_init_obj(&object, MLX5DV_OBJ_AH) != 0) return EINVAL;
  auto &address = wqe.append<mlx5_wqe_datagram_seg>();
  address.av = *ah.av;
  address.av.dqp_dct |= htobe32(wr.dc.dct_number | MLX5_EXTENDED_UD_AV);
  address.av.key.dc_key = htobe64(wr.dc.dct_access_key);
  return 0;
}

int write_nop(const Lane &, const ibv_exp_send_wr &, Special &special) {
  special.wqe.begin(MLX5_OPCODE_NOP, 0);
  // There is no opcode for its completion; the legacy provider left 0.
  special.meaning = {IBV_EXP_WC_SEND, 0};
  return 0;
}

int write_special(const Lane &lane, const ibv_exp_send_wr &wr, Special &special) {
  if (binds_type_1(wr)) return lane.raw ? write_window(lane, wr, special) : EINVAL;
  if (!lane.raw || !translate::opcode_served(wr.exp_opcode))
    return translate::refuse_opcode(wr.exp_opcode);
  switch (int{wr.exp_opcode}) {
    case IBV_EXP_WR_EXT_MASKED_ATOMIC_CMP_AND_SWP:
    case IBV_EXP_WR_EXT_MASKED_ATOMIC_FETCH_AND_ADD: return write_masked_atomic(lane, wr, special);
    case IBV_EXP_WR_UMR_FILL:
    case IBV_EXP_WR_UMR_INVALIDATE: return write_umr(lane, wr, special);
    case IBV_EXP_WR_NOP: return write_nop(lane, wr, special);
    default: return translate::refuse_opcode(wr.exp_opcode);
  }
}

}  // namespace ibvexp::lane
