// Binding memory windows and invalidating them, written straight into the send queue.
#pragma once

#include "translate/queue/engine/send_queue.h"

namespace ibvexp::engine {

// 0, or an errno value, where nothing is posted.
int put_binding(SendQueue &queue, const ibv_send_wr &wr);
int put_binding(SendQueue &queue, const ibv_exp_send_wr &wr);
// flags: IBV_SEND_*.
int put_invalidation(SendQueue &queue, std::uint32_t rkey, std::uint64_t flags,
                     std::uint64_t wr_id);

}  // namespace ibvexp::engine
