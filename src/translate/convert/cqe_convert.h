// Completions as the device writes them, to those of verbs. No calls.
//
// Only for entries that libmlx5 has just taken from the queue: it knows the work
// request, and has checked that the entry is complete.
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cstdint>

namespace ibvexp::translate {

namespace cqe {

// Both lie over the time stamp, in completions with an error.
inline std::uint8_t vendor_syndrome(const mlx5_cqe64 &cqe) {
  return reinterpret_cast<const std::uint8_t *>(&cqe)[54];
}
inline std::uint8_t syndrome(const mlx5_cqe64 &cqe) {
  return reinterpret_cast<const std::uint8_t *>(&cqe)[55];
}

inline std::uint32_t queue_number(const mlx5_cqe64 &cqe) {
  return be32toh(cqe.sop_drop_qpn) & 0xffffff;
}

// Of a request.
inline bool has_immediate(const mlx5_cqe64 &cqe) {
  const std::uint32_t opcode = be32toh(cqe.sop_drop_qpn) >> 24;
  return opcode == MLX5_OPCODE_SEND_IMM || opcode == MLX5_OPCODE_RDMA_WRITE_IMM;
}

inline std::uint64_t timestamp(const mlx5_cqe64 &cqe) { return be64toh(cqe.timestamp); }

// Network and transport checksum good, in an IPv4 packet.
inline bool checksum_ok(const mlx5_cqe64 &cqe) {
  constexpr std::uint8_t both = MLX5_CQE_L3_OK | MLX5_CQE_L4_OK;
  return (cqe.hds_ip_ext & both) == both &&
         (cqe.l4_hdr_type_etc >> 2 & 3) == MLX5_CQE_L3_HDR_TYPE_IPV4;
}

}  // namespace cqe

// Fills what ibv_poll_cq() would have filled, but for wr_id and status, and for
// the opcode of a send completion.
inline void to_modern(const mlx5_cqe64 &from, ibv_wc &to) {
  to.qp_num = cqe::queue_number(from);
  switch (mlx5dv_get_cqe_opcode(const_cast<mlx5_cqe64 *>(&from))) {
    case MLX5_CQE_REQ:
      to.byte_len = be32toh(from.byte_cnt);
      if (cqe::has_immediate(from)) to.wc_flags |= IBV_WC_WITH_IMM;
      return;
    case MLX5_CQE_REQ_ERR:
    case MLX5_CQE_RESP_ERR: to.vendor_err = cqe::vendor_syndrome(from); return;
    case MLX5_CQE_RESP_WR_IMM:
      to.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
      to.wc_flags |= IBV_WC_WITH_IMM;
      to.imm_data = from.imm_inval_pkey;
      break;
    case MLX5_CQE_RESP_SEND_IMM:
      to.opcode = IBV_WC_RECV;
      to.wc_flags |= IBV_WC_WITH_IMM;
      to.imm_data = from.imm_inval_pkey;
      break;
    case MLX5_CQE_RESP_SEND_INV:
      to.opcode = IBV_WC_RECV;
      to.wc_flags |= IBV_WC_WITH_INV;
      to.invalidated_rkey = be32toh(from.imm_inval_pkey);
      break;
    default: to.opcode = IBV_WC_RECV; break;
  }
  const std::uint32_t flags_rqpn = be32toh(from.flags_rqpn);
  to.byte_len = be32toh(from.byte_cnt);
  to.src_qp = flags_rqpn & 0xffffff;
  to.sl = flags_rqpn >> 24 & 0xf;
  if ((flags_rqpn >> 28 & 3) != 0) to.wc_flags |= IBV_WC_GRH;
  to.slid = be16toh(from.slid);
  to.dlid_path_bits = from.ml_path & 0x7f;
  to.pkey_index = be32toh(from.imm_inval_pkey) & 0xffff;
}

}  // namespace ibvexp::translate
