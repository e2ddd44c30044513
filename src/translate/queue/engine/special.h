// Requests that fill or invalidate indirect keys, and masked atomics. Under the lock of the queue,
// with room for one more request; the doorbell is the caller's.
#pragma once

#include "translate/queue/engine/send_queue.h"

namespace ibvexp::engine {

// 0, or an errno value, where nothing is posted.
int put_masked_atomic(SendQueue &queue, const ibv_exp_send_wr &wr);
int put_umr(SendQueue &queue, const ibv_exp_send_wr &wr);

}  // namespace ibvexp::engine
