// One basic work request through the builders: between wr_start and wr_complete
// of its queue pair, and judged before, since a builder that finds a fault takes
// the whole batch back.
#pragma once

#include "translate/state/lane.h"

#include "translate/convert/wr_convert.h"

#include <cerrno>

namespace ibvexp::lane {

using translate::most_pieces;

// 0, or what the legacy provider answered.
inline int judge(const Lane &lane, const ibv_exp_send_wr &wr, ibv_wr_opcode opcode) {
  if (wr.num_sge < 0) [[unlikely]]
    return EINVAL;
  if (static_cast<std::uint32_t>(wr.num_sge) > lane.max_send_sge || wr.num_sge > most_pieces)
      [[unlikely]]
    return ENOMEM;
  if (translate::has_data(opcode)) {
    if (wr.num_sge != 0 && wr.sg_list == nullptr) [[unlikely]]
      return EINVAL;
    if (lane.qp_type() == IBV_QPT_UD && wr.wr.ud.ah == nullptr) [[unlikely]]
      return EINVAL;
    if ((wr.exp_send_flags & IBV_EXP_SEND_INLINE) != 0 &&
        translate::inline_bytes(wr) > lane.max_inline_data) [[unlikely]]
      return ENOMEM;
  }
  if (opcode == IBV_WR_BIND_MW) [[unlikely]] {
    if (lane.no_windows) return EINVAL;
    if (wr.bind_mw.mw == nullptr || wr.bind_mw.mw->type != IBV_MW_TYPE_2) return EINVAL;
    if (wr.bind_mw.bind_info.mr == nullptr && wr.bind_mw.bind_info.length != 0) return EINVAL;
    if (wr.bind_mw.bind_info.length > std::uint64_t{1} << 31) return EOPNOTSUPP;
  }
  if (lane.initiator && opcode != IBV_WR_BIND_MW && opcode != IBV_WR_LOCAL_INV &&
      wr.dc.ah == nullptr) [[unlikely]]
    return EINVAL;
  return 0;
}

inline void set_data(ibv_qp_ex *ex, const ibv_exp_send_wr &wr, bool atomic) {
  if (wr.num_sge != 0 && (wr.exp_send_flags & IBV_EXP_SEND_INLINE) != 0 && !atomic) {
    if (wr.num_sge == 1) {
      ibv_wr_set_inline_data(ex, reinterpret_cast<void *>(wr.sg_list[0].addr),
                             wr.sg_list[0].length);
      return;
    }
    ibv_data_buf pieces[most_pieces];
    for (int i = 0; i < wr.num_sge; ++i)
      pieces[i] = {reinterpret_cast<void *>(wr.sg_list[i].addr), wr.sg_list[i].length};
    ibv_wr_set_inline_data_list(ex, static_cast<std::size_t>(wr.num_sge), pieces);
  } else if (wr.num_sge == 1) {
    // The answer has 8 bytes, whatever the piece says.
    const ibv_sge &piece = wr.sg_list[0];
    ibv_wr_set_sge(ex, piece.lkey, piece.addr, atomic && piece.length != 0 ? 8 : piece.length);
  } else {
    ibv_wr_set_sge_list(ex, static_cast<std::size_t>(wr.num_sge), wr.sg_list);
  }
}

// After judge(), and with a free entry in the send queue.
inline void build(Lane &lane, const ibv_exp_send_wr &wr, ibv_wr_opcode opcode) {
  ibv_qp_ex *ex = lane.ex;
  ex->wr_id = wr.wr_id;
  ex->wr_flags = translate::to_modern_send_flags(wr.exp_send_flags);
  if (lane.fence_built) [[unlikely]]
    ex->wr_flags |= IBV_SEND_FENCE;
  lane.fence_raw = lane.fence_built = false;

  bool atomic = false;
  switch (opcode) {
    case IBV_WR_RDMA_WRITE: ibv_wr_rdma_write(ex, wr.wr.rdma.rkey, wr.wr.rdma.remote_addr); break;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      ibv_wr_rdma_write_imm(ex, wr.wr.rdma.rkey, wr.wr.rdma.remote_addr, wr.ex.imm_data);
      break;
    case IBV_WR_RDMA_READ: ibv_wr_rdma_read(ex, wr.wr.rdma.rkey, wr.wr.rdma.remote_addr); break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      ibv_wr_atomic_cmp_swp(ex, wr.wr.atomic.rkey, wr.wr.atomic.remote_addr,
                            wr.wr.atomic.compare_add, wr.wr.atomic.swap);
      atomic = true;
      break;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      ibv_wr_atomic_fetch_add(ex, wr.wr.atomic.rkey, wr.wr.atomic.remote_addr,
                              wr.wr.atomic.compare_add);
      atomic = true;
      break;
    case IBV_WR_SEND_WITH_IMM: ibv_wr_send_imm(ex, wr.ex.imm_data); break;
    case IBV_WR_SEND_WITH_INV: ibv_wr_send_inv(ex, wr.ex.invalidate_rkey); break;
    case IBV_WR_LOCAL_INV:
      // Complete as they are: neither destination nor data.
      ibv_wr_local_inv(ex, wr.ex.invalidate_rkey);
      lane.fence_raw = true;
      return;
    case IBV_WR_BIND_MW: {
      ibv_mw_bind_info info{};
      info.mr = wr.bind_mw.bind_info.mr;
      info.addr = wr.bind_mw.bind_info.addr;
      info.length = wr.bind_mw.bind_info.length;
      info.mw_access_flags =
          translate::to_modern_window_access(wr.bind_mw.bind_info.exp_mw_access_flags);
      ibv_wr_bind_mw(ex, wr.bind_mw.mw, wr.bind_mw.rkey, &info);
      lane.fence_raw = true;
      return;
    }
    default: ibv_wr_send(ex); break;
  }

  switch (ex->qp_base.qp_type) {
    case IBV_QPT_DRIVER:
      mlx5dv_wr_set_dc_addr(lane.dv, wr.dc.ah, wr.dc.dct_number, wr.dc.dct_access_key);
      break;
    case IBV_QPT_UD:
      ibv_wr_set_ud_addr(ex, wr.wr.ud.ah, wr.wr.ud.remote_qpn, wr.wr.ud.remote_qkey);
      break;
    case IBV_QPT_XRC_SEND: ibv_wr_set_xrc_srqn(ex, wr.qp_type.xrc.remote_srqn); break;
    default: break;
  }
  set_data(ex, wr, atomic);
}

}  // namespace ibvexp::lane
