// Plain completions, modern to legacy: those of requests and receives that
// succeeded and have nothing special, as most are. The same as to_legacy() and
// store() of wc_convert.h, in a few stores of whole words.
#pragma once

#include "translate/convert/wc_convert.h"

#include <array>
#include <bit>

namespace ibvexp::translate {

// The flags of ibv_wc that are no tag matching's.
inline constexpr unsigned plain_flags =
    IBV_WC_GRH | IBV_WC_WITH_IMM | IBV_WC_IP_CSUM_OK | IBV_WC_WITH_INV;

template <bool to_3x_or_4_0>
inline constexpr auto plain_receive_flags = [] {
  std::array<std::uint64_t, plain_flags + 1> flags{};
  for (unsigned n = 0; n < flags.size(); ++n)
    flags[n] = IBV_EXP_WC_QP | receive_flags(n, to_3x_or_4_0);
  return flags;
}();

// If the status is success: an opcode that has one number in both, a receive.
constexpr bool is_plain_send(const ibv_wc &wc) {
  return static_cast<unsigned>(wc.opcode) <= IBV_WC_LOCAL_INV;
}
constexpr bool is_plain_receive(const ibv_wc &wc) {
  return static_cast<unsigned>(wc.opcode) - IBV_WC_RECV <=
             IBV_WC_RECV_RDMA_WITH_IMM - IBV_WC_RECV &&
         wc.wc_flags <= plain_flags;
}

namespace words {

using Word [[gnu::may_alias]] = std::uint64_t;

static_assert(std::endian::native == std::endian::little);
static_assert(offsetof(ibv_exp_wc, exp_opcode) == 12 && offsetof(ibv_exp_wc, byte_len) == 20 &&
              offsetof(ibv_exp_wc, qp_num) == 28 && offsetof(ibv_exp_wc, qp) == 56 &&
              offsetof(ibv_exp_wc, srq) == 64 && offsetof(ibv_exp_wc, exp_wc_flags) == 80);
static_assert(offsetof(ibv_exp_wc, src_qp) == offsetof(ibv_wc, src_qp) &&
              offsetof(ibv_exp_wc, reserved) == offsetof(ibv_wc, wc_flags) &&
              offsetof(ibv_exp_wc, dlid_path_bits) == offsetof(ibv_wc, dlid_path_bits));

}  // namespace words

// from may lie in the memory that is written.
template <std::uint32_t wc_size>
[[gnu::always_inline]] inline void plain_send_to_legacy(const ibv_wc &from, ibv_qp *qp, void *at) {
  const std::uint64_t wr_id = from.wr_id, number = from.qp_num;
  const auto opcode = static_cast<std::uint64_t>(from.opcode);
  const bool brought = opcode - IBV_WC_RDMA_READ <= IBV_WC_FETCH_ADD - IBV_WC_RDMA_READ;
  const std::uint64_t bytes = brought ? from.byte_len : 0;
  static_assert(int{IBV_EXP_WC_WITH_IMM} == int{IBV_WC_WITH_IMM});
  const std::uint64_t flags = IBV_EXP_WC_QP | (from.wc_flags & IBV_WC_WITH_IMM);
  auto *to = static_cast<words::Word *>(at);
  to[0] = wr_id;
  to[1] = opcode << 32;
  to[2] = bytes << 32;
  to[3] = number << 32;
  std::memset(to + 4, 0, wc_size - 4 * sizeof(*to));
  to[7] = reinterpret_cast<std::uintptr_t>(qp);
  to[10] = flags;
}

template <std::uint32_t wc_size>
[[gnu::always_inline]] inline void plain_receive_to_legacy(const ibv_wc &from, ibv_qp *qp,
                                                           ibv_srq *srq, void *at) {
  const std::uint64_t wr_id = from.wr_id, number = from.qp_num, bytes = from.byte_len;
  const auto opcode = static_cast<std::uint64_t>(from.opcode);
  const unsigned flags = from.wc_flags;
  const bool immediate = (flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV)) != 0;
  const std::uint32_t data = immediate ? from.imm_data : 0;
  auto *to = static_cast<words::Word *>(at);
  std::memmove(to + 4, &from.src_qp, 2 * sizeof(*to));
  to[0] = wr_id;
  to[1] = opcode << 32;
  to[2] = bytes << 32;
  to[3] = number << 32 | data;
  std::memset(to + 6, 0, wc_size - 6 * sizeof(*to));
  to[7] = reinterpret_cast<std::uintptr_t>(qp);
  to[8] = reinterpret_cast<std::uintptr_t>(srq);
  to[10] = plain_receive_flags<wc_size == wc_size_4_0>[flags] |
           (srq != nullptr ? std::uint64_t{IBV_EXP_WC_SRQ} : 0);
}

}  // namespace ibvexp::translate
