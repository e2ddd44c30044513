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

constexpr bool is_about_tags(ibv_wc_opcode opcode) {
  return opcode >= IBV_WC_TM_ADD && opcode <= IBV_WC_TM_NO_TAG;
}

// Whether the completion is one of an operation on the list of tags.
constexpr bool is_list_operation(ibv_wc_opcode opcode) {
  return opcode == IBV_WC_TM_ADD || opcode == IBV_WC_TM_DEL || opcode == IBV_WC_TM_SYNC;
}

// (exp <- modern) TSO moved, and so did those of tag matching, in their order.
constexpr ibv_exp_wc_opcode to_legacy(ibv_wc_opcode opcode) {
  static_assert(IBV_WC_TM_NO_TAG - IBV_WC_TM_ADD == IBV_EXP_WC_TM_NO_TAG - IBV_EXP_WC_TM_ADD &&
                IBV_WC_TM_RECV - IBV_WC_TM_ADD == IBV_EXP_WC_TM_RECV - IBV_EXP_WC_TM_ADD);
  if (is_about_tags(opcode))
    return static_cast<ibv_exp_wc_opcode>(opcode - IBV_WC_TM_ADD + IBV_EXP_WC_TM_ADD);
  return opcode == IBV_WC_TSO ? IBV_EXP_WC_TSO : static_cast<ibv_exp_wc_opcode>(opcode);
}

// What is an error of tag matching in rdma-core was a flag of a success.
constexpr bool is_flag(ibv_wc_status status) {
  return status == IBV_WC_TM_ERR || status == IBV_WC_TM_RNDV_INCOMPLETE;
}

// (exp <- modern) What is said about a tag.
constexpr std::uint64_t tag_flags(ibv_wc_status status, unsigned wc_flags) {
  std::uint64_t to = 0;
  if (status == IBV_WC_TM_ERR) to |= IBV_EXP_WC_TM_DEL_FAILED;
  if (status == IBV_WC_TM_RNDV_INCOMPLETE) to |= IBV_EXP_WC_TM_RNDV_INCOMPLETE;
  if ((wc_flags & IBV_WC_TM_SYNC_REQ) != 0) to |= IBV_EXP_WC_TM_SYNC_REQ;
  if ((wc_flags & IBV_WC_TM_MATCH) != 0) to |= IBV_EXP_WC_TM_MATCH;
  if ((wc_flags & IBV_WC_TM_DATA_VALID) != 0) to |= IBV_EXP_WC_TM_DATA_VALID;
  return to;
}

// Whether the completion of a request has the length of an answer.
constexpr bool brings_data(ibv_exp_wc_opcode opcode) {
  return opcode == IBV_EXP_WC_RDMA_READ || opcode == IBV_EXP_WC_COMP_SWAP ||
         opcode == IBV_EXP_WC_FETCH_ADD;
}

constexpr bool is_receive(ibv_wc_opcode opcode) {
  return (opcode & IBV_WC_RECV) != 0 && !is_list_operation(opcode);
}

// (exp <- modern) What a receive reports. Service level and source LID are there, but the
// legacy provider never said so by flags.
constexpr std::uint64_t receive_flags(unsigned wc_flags, bool to_3x_or_4_0) {
  constexpr unsigned common = IBV_WC_GRH | IBV_WC_WITH_IMM | IBV_WC_WITH_INV;
  static_assert(common == (IBV_EXP_WC_GRH | IBV_EXP_WC_WITH_IMM | IBV_EXP_WC_WITH_INV));
  std::uint64_t to = wc_flags & common;
  // One flag for network and transport checksum of IPv4 packets.
  if ((wc_flags & IBV_WC_IP_CSUM_OK) != 0)
    to |= IBV_EXP_WC_RX_IP_CSUM_OK | IBV_EXP_WC_RX_TCP_UDP_CSUM_OK | IBV_EXP_WC_RX_IPV4_PACKET;
  if (to_3x_or_4_0 && (wc_flags & IBV_WC_WITH_INV) != 0) to |= with_inv_3x;
  return to;
}

// The queue pair of a completion, or the DC target, if it is known.
struct Origin {
  ibv_qp *qp;
  ibv_srq *srq;
  ibv_exp_dct *dct;
};

// The legacy structure begins with the members of the modern one.
static_assert(offsetof(ibv_exp_wc, byte_len) == offsetof(ibv_wc, byte_len) &&
              offsetof(ibv_exp_wc, imm_data) == offsetof(ibv_wc, imm_data) &&
              offsetof(ibv_exp_wc, qp_num) == offsetof(ibv_wc, qp_num) &&
              offsetof(ibv_exp_wc, src_qp) == offsetof(ibv_wc, src_qp) &&
              offsetof(ibv_exp_wc, reserved) == offsetof(ibv_wc, wc_flags) &&
              offsetof(ibv_exp_wc, pkey_index) == offsetof(ibv_wc, pkey_index) &&
              offsetof(ibv_exp_wc, slid) == offsetof(ibv_wc, slid) &&
              offsetof(ibv_exp_wc, sl) == offsetof(ibv_wc, sl) &&
              offsetof(ibv_exp_wc, dlid_path_bits) == offsetof(ibv_wc, dlid_path_bits) &&
              offsetof(ibv_exp_wc, timestamp) == sizeof(ibv_wc));

// What only messages have.
inline void clear_message(ibv_exp_wc &wc) {
  wc.byte_len = wc.imm_data = 0;
  // Together with the padding, in one instruction.
  constexpr std::size_t begin = offsetof(ibv_exp_wc, src_qp);
  std::memset(reinterpret_cast<char *>(&wc) + begin, 0, offsetof(ibv_exp_wc, timestamp) - begin);
}

// Makes of a completion that has the modern members a legacy one. libmlx5 leaves members that have
// no meaning for an opcode unwritten. What is undefined there is zero here.
[[gnu::always_inline]] inline void complete_legacy(ibv_exp_wc &wc, const Origin &origin,
                                                   bool to_3x_or_4_0) {
  const ibv_wc_status status = wc.status;
  const auto opcode = static_cast<ibv_wc_opcode>(wc.exp_opcode);
  const std::uint32_t byte_len = wc.byte_len;
  const auto wc_flags = static_cast<unsigned>(wc.reserved);
  std::uint64_t flags = origin.qp != nullptr ? std::uint64_t{IBV_EXP_WC_QP} : 0;
  wc.timestamp = 0;
  wc.qp = origin.qp;
  wc.srq = nullptr;
  wc.dct = nullptr;
  wc.tm_info = {};
  if (origin.dct != nullptr) [[unlikely]] {
    wc.dct = origin.dct;
    wc.srq = origin.srq;
    flags |= IBV_EXP_WC_DCT | IBV_EXP_WC_SRQ;
  }
  wc.exp_wc_flags = flags;
  if (status != IBV_WC_SUCCESS) [[unlikely]] {
    if (!is_flag(status)) {
      wc.exp_opcode = {};
      return clear_message(wc);
    }
    wc.status = IBV_WC_SUCCESS;
  }

  wc.vendor_err = 0;
  wc.exp_opcode = to_legacy(opcode);
  if (is_about_tags(opcode)) [[unlikely]]
    flags |= tag_flags(status, wc_flags);
  if (!is_receive(opcode)) {
    clear_message(wc);
    if (brings_data(wc.exp_opcode)) wc.byte_len = byte_len;
    wc.exp_wc_flags = flags | (wc_flags & IBV_WC_WITH_IMM);
    return;
  }

  flags |= receive_flags(wc_flags, to_3x_or_4_0);
  if ((wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV)) == 0) wc.imm_data = 0;
  if (origin.srq != nullptr) {
    wc.srq = origin.srq;
    flags |= IBV_EXP_WC_SRQ;
  }
  wc.exp_wc_flags = flags;
}
[[gnu::always_inline]] inline ibv_exp_wc to_legacy(const ibv_wc &from, const Origin &origin,
                                                   bool to_3x_or_4_0) {
  ibv_exp_wc to{};
  std::memcpy(static_cast<void *>(&to), &from, sizeof(from));
  complete_legacy(to, origin, to_3x_or_4_0);
  return to;
}

// Writes as much of a completion as the caller's structure holds.
inline void store(const ibv_exp_wc &wc, void *at, std::uint32_t wc_size) {
  if (wc_size >= sizeof(wc)) [[likely]]
    std::memcpy(at, &wc, sizeof(wc));
  else std::memcpy(at, &wc, wc_size);
}

}  // namespace ibvexp::translate
