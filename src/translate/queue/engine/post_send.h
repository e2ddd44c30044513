// Writing a chain of send requests into a queue, from either layout, in one pass.
//
// As in the legacy provider, the requests before the first bad one are posted, bad_wr
// points to it, a full queue is ENOMEM, and the doorbell is rung once
// per chain.
#pragma once

#include "translate/convert/wr_convert.h"
#include "translate/queue/engine/send_queue.h"

namespace ibvexp::engine {

// Whether the loop in post_send.cpp writes such requests.
constexpr bool is_ordinary(Transport transport, std::uint32_t opcode) {
  switch (opcode) {
    case IBV_WR_SEND: return true;
    case IBV_WR_SEND_WITH_IMM: return transport != Transport::raw_packet;
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_SEND_WITH_INV:
      return transport != Transport::raw_packet && transport != Transport::ud;
    case IBV_WR_RDMA_READ:
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return transport == Transport::rc || transport == Transport::xrc ||
             transport == Transport::dc;
    default: return false;
  }
}

// Whether the data of a request with this opcode are in its gather list. Opcodes of the
// legacy interface are above those of the base interface, except TSO.
constexpr bool has_list(std::uint32_t opcode) {
  return opcode <= IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_SEND_WITH_INV ||
         opcode == translate::send_with_inv_3x || opcode == IBV_WR_TSO ||
         opcode == IBV_EXP_WR_TSO || opcode == IBV_EXP_WR_EXT_MASKED_ATOMIC_CMP_AND_SWP ||
         opcode == IBV_EXP_WR_EXT_MASKED_ATOMIC_FETCH_AND_ADD;
}

// Outcome of put_other(): an errno value; or the request is ordinary, except
// for flags without effect; or its entry was written, with this opcode.
struct OtherResult {
  int error = 0;
  bool ordinary = false;
  std::uint32_t opcode = 0;
};

// Less usual opcodes and flags, and refusals. Queue lock held; with an error
// nothing is posted.
OtherResult put_other(SendQueue &queue, const ibv_send_wr &wr);
OtherResult put_other(SendQueue &queue, const ibv_exp_send_wr &wr);

// Copies the data of a request inline to `at` in the ring, without the first `skip` bytes of the
// first piece. Returns the number of segments, or too_long.
inline constexpr std::uint32_t too_long = ~0u;
template <std::uint32_t skip>
std::uint32_t put_inline(const SendQueue &queue, std::uint8_t *at, const ibv_sge *list, int count);

}  // namespace ibvexp::engine
