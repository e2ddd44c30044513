// What a send request says, in both layouts. They coincide in what most requests
// need; the names and the flags' place differ.
#pragma once

#include <infiniband/verbs_exp.h>

#include <cstddef>
#include <cstdint>

namespace ibvexp::engine {

static_assert(offsetof(ibv_exp_send_wr, exp_opcode) == offsetof(ibv_send_wr, opcode));
static_assert(offsetof(ibv_exp_send_wr, ex) == offsetof(ibv_send_wr, imm_data));
static_assert(offsetof(ibv_exp_send_wr, wr) == offsetof(ibv_send_wr, wr));

// Opcodes below 10 are the same.
inline std::uint32_t opcode_of(const ibv_send_wr &wr) {
  return static_cast<std::uint32_t>(wr.opcode);
}
inline std::uint32_t opcode_of(const ibv_exp_send_wr &wr) {
  return static_cast<std::uint32_t>(wr.exp_opcode);
}
static_assert(int{IBV_WR_RDMA_WRITE} == int{IBV_EXP_WR_RDMA_WRITE} &&
              int{IBV_WR_RDMA_WRITE_WITH_IMM} == int{IBV_EXP_WR_RDMA_WRITE_WITH_IMM} &&
              int{IBV_WR_SEND} == int{IBV_EXP_WR_SEND} &&
              int{IBV_WR_SEND_WITH_IMM} == int{IBV_EXP_WR_SEND_WITH_IMM} &&
              int{IBV_WR_RDMA_READ} == int{IBV_EXP_WR_RDMA_READ} &&
              int{IBV_WR_ATOMIC_CMP_AND_SWP} == int{IBV_EXP_WR_ATOMIC_CMP_AND_SWP} &&
              int{IBV_WR_ATOMIC_FETCH_AND_ADD} == int{IBV_EXP_WR_ATOMIC_FETCH_AND_ADD});

inline std::uint64_t flags_of(const ibv_send_wr &wr) { return wr.send_flags; }
inline std::uint64_t flags_of(const ibv_exp_send_wr &wr) { return wr.exp_send_flags; }

inline constexpr std::uint64_t checksum_flag(const ibv_send_wr *) { return IBV_SEND_IP_CSUM; }
inline constexpr std::uint64_t checksum_flag(const ibv_exp_send_wr *) {
  return IBV_EXP_SEND_IP_CSUM;
}

// What was written of a chain: the last request, and the first eight bytes of its entry. Null: none.
template <class Wr>
struct Written {
  Wr *last = nullptr;
  std::uint64_t head = 0;
};

// In network order.
inline std::uint32_t immediate_of(const ibv_send_wr &wr) { return wr.imm_data; }
inline std::uint32_t immediate_of(const ibv_exp_send_wr &wr) { return wr.ex.imm_data; }

}  // namespace ibvexp::engine
