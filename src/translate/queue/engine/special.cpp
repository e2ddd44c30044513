#include "translate/queue/lane/special.h"

#include "translate/convert/room.h"
#include "translate/convert/wr_convert.h"
#include "translate/queue/engine/segments.h"
#include "translate/queue/send_refusal.h"

#include <cerrno>

namespace ibvexp::lane {

bool binds_type_1(const ibv_exp_send_wr &wr) {
  const int opcode = wr.exp_opcode;
  return (opcode == IBV_EXP_WR_BIND_MW || opcode == translate::bind_mw_3x) &&
         wr.bind_mw.mw != nullptr && wr.bind_mw.mw->type == IBV_MW_TYPE_1;
}

Poster poster_of(const Lane &lane) {
  return {.context = lane.ex->qp_base.context,
          .type = lane.qp_type(),
          .number = lane.qp_num(),
          .initiator = lane.initiator,
          .no_windows = lane.no_windows,
          .max_send_sge = lane.max_send_sge,
          .max_bytes = overhead(lane.qp_type()) + inline_header + lane.max_inline_data,
          .max_umr_pieces = lane.max_umr_pieces};
}

int append_address(const Poster &poster, const ibv_exp_send_wr &wr, RawWqe &wqe) {
  if (!poster.initiator) return 0;
  if (wr.dc.ah == nullptr) return EINVAL;
  engine::write_address(wqe.append(sizeof(mlx5_wqe_datagram_seg)), wr.dc.ah,
                        htobe64(wr.dc.dct_access_key), wr.dc.dct_number);
  return 0;
}

int write_nop(const Poster &, const ibv_exp_send_wr &, Special &special) {
  special.wqe.begin(MLX5_OPCODE_NOP, 0);
  // There is no opcode for its completion.
  special.meaning = {IBV_EXP_WC_SEND, 0};
  return 0;
}

int write_special(const Lane &lane, const ibv_exp_send_wr &wr, Special &special) {
  const Poster poster = poster_of(lane);
  if (binds_type_1(wr)) return lane.raw ? write_window(poster, wr, special) : EINVAL;
  if (!lane.raw || !translate::opcode_served(wr.exp_opcode))
    return translate::refuse_opcode(wr.exp_opcode);
  switch (int{wr.exp_opcode}) {
    case IBV_EXP_WR_EXT_MASKED_ATOMIC_CMP_AND_SWP:
    case IBV_EXP_WR_EXT_MASKED_ATOMIC_FETCH_AND_ADD:
      return write_masked_atomic(poster, wr, special);
    case IBV_EXP_WR_UMR_FILL:
    case IBV_EXP_WR_UMR_INVALIDATE: return write_umr(poster, wr, special);
    case IBV_EXP_WR_NOP: return write_nop(poster, wr, special);
    default: return translate::refuse_opcode(wr.exp_opcode);
  }
}

}  // namespace ibvexp::lane
