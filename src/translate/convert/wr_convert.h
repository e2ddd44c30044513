// Send requests, legacy to modern. No calls.
//
// The two structures coincide in the first 80 bytes but for the numbers of opcodes and the place
// of the flags: these are copied, although programs leave what the opcode does not use
// uninitialised. What lies behind differs, and is read for the opcodes that use it.
#pragma once

#include <infiniband/verbs_exp.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "translate/convert/access_convert.h"

namespace ibvexp::translate {

static_assert(offsetof(ibv_exp_send_wr, exp_opcode) == offsetof(ibv_send_wr, opcode));
static_assert(offsetof(ibv_exp_send_wr, ex) == offsetof(ibv_send_wr, imm_data));
static_assert(sizeof(ibv_exp_send_wr::wr) == sizeof(ibv_send_wr::wr));
static_assert(offsetof(ibv_exp_send_wr, qp_type) == offsetof(ibv_send_wr, qp_type));
inline constexpr std::size_t common_bytes = offsetof(ibv_send_wr, bind_mw);
static_assert(common_bytes == 80 && sizeof(ibv_exp_send_wr) > common_bytes);

// MLNX_OFED 3.x numbered three opcodes differently; nothing else ever had
// these numbers.
inline constexpr int send_with_inv_3x = 0x48;
inline constexpr int local_inv_3x = 0x4a;
inline constexpr int bind_mw_3x = 0x4e;

// How a request of an opcode is posted.
enum class Handling : std::uint8_t {
  chained,  // in one call with its neighbours
  alone,    // in a call of its own: the provider may refuse it when it has begun
  illegal,  // not on this type of queue pair
  other,    // no basic opcode
};

struct Opcode {
  ibv_wr_opcode modern;
  Handling handling;
};

constexpr bool is_connected(ibv_qp_type type) {
  return type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND || type == IBV_QPT_DRIVER;
}

// libmlx5 writes a malformed entry when the type does not know the opcode, so
// that is settled here. RC, XRC and DC initiators know all, UC no reads and
// atomics, datagrams and raw packets only plain sends.
[[gnu::always_inline]] constexpr Opcode to_modern_opcode(int opcode, ibv_qp_type type) {
  const bool connected = is_connected(type);
  const bool writes = connected || type == IBV_QPT_UC;
  const auto where = [](bool legal, Handling handling) {
    return legal ? handling : Handling::illegal;
  };
  switch (opcode) {
    case IBV_EXP_WR_RDMA_WRITE: return {IBV_WR_RDMA_WRITE, where(writes, Handling::chained)};
    case IBV_EXP_WR_RDMA_WRITE_WITH_IMM:
      return {IBV_WR_RDMA_WRITE_WITH_IMM, where(writes, Handling::chained)};
    case IBV_EXP_WR_SEND: return {IBV_WR_SEND, Handling::chained};
    case IBV_EXP_WR_SEND_WITH_IMM:
      return {IBV_WR_SEND_WITH_IMM, where(writes || type == IBV_QPT_UD, Handling::chained)};
    case IBV_EXP_WR_RDMA_READ: return {IBV_WR_RDMA_READ, where(connected, Handling::chained)};
    case IBV_EXP_WR_ATOMIC_CMP_AND_SWP:
      return {IBV_WR_ATOMIC_CMP_AND_SWP, where(connected, Handling::chained)};
    case IBV_EXP_WR_ATOMIC_FETCH_AND_ADD:
      return {IBV_WR_ATOMIC_FETCH_AND_ADD, where(connected, Handling::chained)};
    case send_with_inv_3x:
    case IBV_EXP_WR_SEND_WITH_INV: return {IBV_WR_SEND_WITH_INV, where(writes, Handling::chained)};
    case local_inv_3x:
    case IBV_EXP_WR_LOCAL_INV: return {IBV_WR_LOCAL_INV, where(writes, Handling::alone)};
    case bind_mw_3x:
    case IBV_EXP_WR_BIND_MW: return {IBV_WR_BIND_MW, where(writes, Handling::alone)};
    case IBV_EXP_WR_TSO: return {IBV_WR_TSO, where(type == IBV_QPT_RAW_PACKET, Handling::chained)};
    default: return {IBV_WR_SEND, Handling::other};
  }
}

constexpr bool is_atomic(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

// More pieces than any send queue entry holds.
inline constexpr int most_pieces = 64;

// Judges a request whose opcode has data: 0, or why the list of its pieces cannot be
// followed.
template <class Wr>
int judge_pieces(const Wr &wr) {
  if (wr.num_sge == 0) return 0;
  if (wr.num_sge < 0 || wr.sg_list == nullptr) return EINVAL;
  return wr.num_sge > most_pieces ? ENOMEM : 0;
}

constexpr bool has_data(ibv_wr_opcode opcode) {
  return opcode != IBV_WR_LOCAL_INV && opcode != IBV_WR_BIND_MW;
}

inline std::uint64_t inline_bytes(const ibv_exp_send_wr &wr) {
  std::uint64_t total = 0;
  for (int i = 0; i < wr.num_sge; ++i) total += wr.sg_list[i].length;
  return total;
}

// (modern <- exp) FENCE, SIGNALED, SOLICITED and INLINE coincide; IP_CSUM moves.
constexpr unsigned to_modern_send_flags(std::uint64_t exp_flags) {
  constexpr std::uint64_t common =
      IBV_EXP_SEND_FENCE | IBV_EXP_SEND_SIGNALED | IBV_EXP_SEND_SOLICITED | IBV_EXP_SEND_INLINE;
  static_assert(common ==
                (IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE));
  unsigned flags = static_cast<unsigned>(exp_flags & common);
  if ((exp_flags & IBV_EXP_SEND_IP_CSUM) != 0) flags |= IBV_SEND_IP_CSUM;
  return flags;
}

// Writes a request whose opcode and flags have the same numbers. next is left to the caller.
inline void to_modern(const ibv_exp_send_wr &from, ibv_send_wr &to) {
  std::memcpy(static_cast<void *>(&to), &from, common_bytes);
  to.send_flags = static_cast<unsigned>(from.exp_send_flags);
}

// Writes what the provider reads for any opcode.
inline void to_modern(const ibv_exp_send_wr &from, ibv_wr_opcode opcode, ibv_send_wr &to) {
  to_modern(from, to);
  // Release 28 looks for data where none belongs.
  if (!has_data(opcode)) to.num_sge = 0;
  to.opcode = opcode;
  to.send_flags = to_modern_send_flags(from.exp_send_flags);
  if (opcode == IBV_WR_TSO) {
    to.tso.hdr = from.tso.hdr;
    to.tso.hdr_sz = from.tso.hdr_sz;
    to.tso.mss = from.tso.mss;
  } else if (opcode == IBV_WR_BIND_MW) {
    to.bind_mw.mw = from.bind_mw.mw;
    to.bind_mw.rkey = from.bind_mw.rkey;
    to.bind_mw.bind_info.mr = from.bind_mw.bind_info.mr;
    to.bind_mw.bind_info.addr = from.bind_mw.bind_info.addr;
    to.bind_mw.bind_info.length = from.bind_mw.bind_info.length;
    to.bind_mw.bind_info.mw_access_flags =
        to_modern_window_access(from.bind_mw.bind_info.exp_mw_access_flags);
  }
}

}  // namespace ibvexp::translate
