// Posting to a shared receive queue.
#pragma once

#include "translate/queue/engine/shared_queue.h"

namespace ibvexp::engine {

// What posts to a queue with entries of that size.
SharedQueue::Post post_for(const SharedQueue &queue);

[[gnu::always_inline]] inline int post_receive(SharedQueue &queue, ibv_recv_wr *wr,
                                               ibv_recv_wr **bad) {
  return queue.post(queue, wr, bad);
}

}  // namespace ibvexp::engine
