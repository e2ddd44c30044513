#include "translate/queue/engine/special.h"

#include <cerrno>

#include "translate/queue/engine/segments.h"

namespace ibvexp::engine {

int append_address(const PostingQp &qp, const ibv_exp_send_wr &wr, RawWqe &wqe) {
  if (!qp.initiator) return 0;
  if (wr.dc.ah == nullptr) return EINVAL;
  write_address(wqe.append(sizeof(mlx5_wqe_datagram_seg)), wr.dc.ah, htobe64(wr.dc.dct_access_key),
                wr.dc.dct_number);
  return 0;
}

int write_nop(const PostingQp &, const ibv_exp_send_wr &, Special &special) {
  special.wqe.begin(MLX5_OPCODE_NOP, 0);
  return 0;
}

}  // namespace ibvexp::engine
