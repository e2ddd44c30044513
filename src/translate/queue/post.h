// Posting work requests.
#pragma once

#include <infiniband/verbs_exp.h>

#include "base/result.h"
#include "translate/queue/engine/send_queue.h"
#include "translate/queue/front.h"
#include "translate/queue/native/post.h"

namespace ibvexp::translate {

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

// qp: the program's.
[[gnu::always_inline]] inline Result<void> post_send(ibv_qp *qp, ibv_exp_send_wr *wr,
                                                     ibv_exp_send_wr **bad_wr) {
  if (const queue::QpFront *front = queue::front_of(qp)) [[likely]] {
    if (engine::SendQueue *queue = front->own.send) [[likely]] {
      const int error = queue->post_exp(*queue, wr, bad_wr);
      return error == 0 ? Result<void>{} : Error{error};
    }
    qp = front->own.back;
  }
  return native::post_send(qp, wr, bad_wr);
}

}  // namespace ibvexp::translate
