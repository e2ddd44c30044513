// Posting work requests.
#pragma once

#include "base/result.h"
#include "translate/queue/engine/send_queue.h"
#include "translate/queue/front.h"
#include "translate/state/context_state.h"

#include <infiniband/verbs_exp.h>

#include <cstddef>
#include <cstring>

namespace ibvexp::translate {

// Most requests are simple: both structures say the same, and nothing in them can
// be refused. Known when the queue pair is created, but for flags and inline data.
inline bool is_simple(const ibv_exp_send_wr &wr, const QpState &known) {
  constexpr std::uint64_t plain =
      IBV_EXP_SEND_FENCE | IBV_EXP_SEND_SIGNALED | IBV_EXP_SEND_SOLICITED;
  const auto opcode = static_cast<unsigned>(wr.exp_opcode);
  if (opcode >= 32 || (known.simple_opcodes >> opcode & 1) == 0) return false;
  if (wr.sg_list == nullptr ? wr.num_sge != 0 : wr.num_sge < 0) return false;
  if (known.datagram && wr.wr.ud.ah == nullptr) return false;
  if ((wr.exp_send_flags & ~plain) == 0) return true;
  return (wr.exp_send_flags & ~(plain | IBV_EXP_SEND_INLINE)) == 0 && wr.num_sge == 1 &&
         wr.sg_list->length <= known.max_inline_data;
}

// (modern <- exp) next is left to the caller.
inline void copy_simple(const ibv_exp_send_wr &from, ibv_send_wr &to) {
  static_assert(offsetof(ibv_exp_send_wr, task) == offsetof(ibv_send_wr, bind_mw));
  static_assert(offsetof(ibv_exp_send_wr, qp_type) == offsetof(ibv_send_wr, qp_type));
  std::memcpy(static_cast<void *>(&to), &from, offsetof(ibv_exp_send_wr, task));
  to.send_flags = static_cast<unsigned>(from.exp_send_flags);
}

// Any queue pair, any chain.
Result<void> post_any(ibv_qp *qp, ibv_exp_send_wr *wr, ibv_exp_send_wr **bad_wr);

// What most calls come to: the engine's queue, or null, and its answer.
[[gnu::always_inline]] inline engine::SendQueue *driven_queue(ibv_qp *qp, ibv_exp_send_wr *,
                                                              ibv_exp_send_wr **) {
  const queue::QpFront *front = queue::front_of(qp);
  return front != nullptr ? front->own.send : nullptr;
}
[[gnu::always_inline]] inline int run(engine::SendQueue &queue, ibv_qp *, ibv_exp_send_wr *wr,
                                      ibv_exp_send_wr **bad_wr) {
  return queue.post_exp(queue, wr, bad_wr);
}
inline Error refuse(int error, const ibv_qp *) { return {error}; }

// qp: the program's. Where libmlx5 has the data path, one simple request goes there at
// once.
[[gnu::always_inline]] inline Result<void> post_send(ibv_qp *qp, ibv_exp_send_wr *wr,
                                                     ibv_exp_send_wr **bad_wr) {
  if (const queue::QpFront *front = queue::front_of(qp)) [[likely]] {
    if (engine::SendQueue *queue = front->own.send) [[likely]] {
      const int error = queue->post_exp(*queue, wr, bad_wr);
      return error == 0 ? Result<void>{} : Error{error};
    }
    qp = front->own.back;
  }
  ContextState *state = attached(qp->context);
  const QpState *known = find_qp(state, qp);
  if (known == nullptr || wr == nullptr || wr->next != nullptr || !is_simple(*wr, *known))
      [[unlikely]]
    return post_any(qp, wr, bad_wr);
  ibv_send_wr modern;
  copy_simple(*wr, modern);
  modern.next = nullptr;
  ibv_send_wr *modern_bad;
  const int error = state->native.post_send(qp, &modern, &modern_bad);
  if (error == 0) [[likely]]
    return {};
  if (bad_wr != nullptr) *bad_wr = wr;
  return Error{error < 0 ? -error : error};
}

}  // namespace ibvexp::translate
