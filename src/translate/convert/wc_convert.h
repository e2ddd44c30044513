// Completions, modern to legacy. No calls.
#pragma once

#include <infiniband/verbs_exp.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ibvexp::translate {

// Sizes of ibv_exp_wc: up to MLNX_OFED 4.0, and since 4.1.
inline constexpr std::uint32_t wc_size_4_0 = offsetof(ibv_exp_wc, tm_info);
inline constexpr std::uint32_t wc_size_4_1 = sizeof(ibv_exp_wc);
static_assert(wc_size_4_0 == 88 && wc_size_4_1 == 104);

// The flag of an invalidated key in 3.x. No release since uses the bit, and 3.x
// and 4.0 have one wc_size, so those two get it as well.
inline constexpr std::uint64_t with_inv_3x = std::uint64_t{IBV_EXP_START_FLAG} << 2;

// (exp <- modern) Only TSO moved. The opcodes from IBV_WC_TM_ADD on are not
// produced by what this library creates.
constexpr ibv_exp_wc_opcode to_legacy(ibv_wc_opcode opcode) {
  return opcode == IBV_WC_TSO ? IBV_EXP_WC_TSO : static_cast<ibv_exp_wc_opcode>(opcode);
}

// Whether the completion of a request has the length of an answer.
constexpr bool brings_data(ibv_exp_wc_opcode opcode) {
  return opcode == IBV_EXP_WC_RDMA_READ || opcode == IBV_EXP_WC_COMP_SWAP ||
         opcode == IBV_EXP_WC_FETCH_ADD || opcode == IBV_EXP_WC_MASKED_COMP_SWAP ||
         opcode == IBV_EXP_WC_MASKED_FETCH_ADD;
}

constexpr bool is_receive(ibv_wc_opcode opcode) { return (opcode & IBV_WC_RECV) != 0; }

// (exp <- modern) What a receive reports. Service level and source LID are there, but the
// legacy provider never said so by flags.
constexpr std::uint64_t receive_flags(unsigned wc_flags, bool to_3x_or_4_0) {
  std::uint64_t to = 0;
  // One flag for network and transport checksum of IPv4 packets.
  if ((wc_flags & IBV_WC_IP_CSUM_OK) != 0)
    to |= IBV_EXP_WC_RX_IP_CSUM_OK | IBV_EXP_WC_RX_TCP_UDP_CSUM_OK | IBV_EXP_WC_RX_IPV4_PACKET;
  if ((wc_flags & IBV_WC_GRH) != 0) to |= IBV_EXP_WC_GRH;
  if ((wc_flags & IBV_WC_WITH_IMM) != 0) to |= IBV_EXP_WC_WITH_IMM;
  if ((wc_flags & IBV_WC_WITH_INV) != 0)
    to |= IBV_EXP_WC_WITH_INV | (to_3x_or_4_0 ? with_inv_3x : 0);
  return to;
}

// The queue pair of a completion, or the DC target, if it is known.
struct Origin {
  ibv_qp *qp;
  ibv_srq *srq;
  ibv_exp_dct *dct;
  bool raw;  // a frame that was received
};

// libmlx5 leaves members that have no meaning for an opcode unwritten. What is
// undefined there is zero here.
inline ibv_exp_wc to_legacy(const ibv_wc &from, const Origin &origin, bool to_3x_or_4_0) {
  ibv_exp_wc to{};
  to.wr_id = from.wr_id;
  to.status = from.status;
  to.qp_num = from.qp_num;
  if (origin.qp != nullptr) {
    to.qp = origin.qp;
    to.exp_wc_flags |= IBV_EXP_WC_QP;
  }
  if (origin.dct != nullptr) {
    to.dct = origin.dct;
    to.srq = origin.srq;
    to.exp_wc_flags |= IBV_EXP_WC_DCT | IBV_EXP_WC_SRQ;
  }
  if (from.status != IBV_WC_SUCCESS) {
    to.vendor_err = from.vendor_err;
    return to;
  }

  to.exp_opcode = to_legacy(from.opcode);
  if (!is_receive(from.opcode)) {
    if (brings_data(to.exp_opcode)) to.byte_len = from.byte_len;
    if ((from.wc_flags & IBV_WC_WITH_IMM) != 0) to.exp_wc_flags |= IBV_EXP_WC_WITH_IMM;
    return to;
  }

  to.byte_len = from.byte_len;
  to.src_qp = from.src_qp;
  to.pkey_index = from.pkey_index;
  to.slid = from.slid;
  to.sl = from.sl;
  to.dlid_path_bits = from.dlid_path_bits;
  to.reserved = static_cast<int>(from.wc_flags);
  to.exp_wc_flags |= receive_flags(from.wc_flags, to_3x_or_4_0);
  if ((from.wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV)) != 0) to.imm_data = from.imm_data;
  if (origin.srq != nullptr) {
    to.srq = origin.srq;
    to.exp_wc_flags |= IBV_EXP_WC_SRQ;
  }
  return to;
}

// Writes as much of a completion as the caller's structure holds.
inline void store(const ibv_exp_wc &wc, void *at, std::uint32_t wc_size) {
  if (wc_size >= sizeof(wc)) [[likely]]
    std::memcpy(at, &wc, sizeof(wc));
  else std::memcpy(at, &wc, wc_size);
}

}  // namespace ibvexp::translate
