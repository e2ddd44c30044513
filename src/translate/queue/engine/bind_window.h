// Binding memory windows and invalidating them, written straight into the send queue.
#pragma once

#include "translate/queue/engine/request.h"
#include "translate/queue/engine/send_queue.h"

namespace ibvexp::engine {

// Writes bindings of the usual form, as many as a chain begins with, until so many requests have
// been posted as limit says. The first one has the opcode; there is room for it.
Written<ibv_send_wr> put_bindings(SendQueue &queue, ibv_send_wr *wr, std::uint32_t limit);
Written<ibv_exp_send_wr> put_bindings(SendQueue &queue, ibv_exp_send_wr *wr, std::uint32_t limit);

// Any other. 0, or an errno value, where nothing is posted.
int put_binding(SendQueue &queue, const ibv_send_wr &wr);
int put_binding(SendQueue &queue, const ibv_exp_send_wr &wr);
// flags: IBV_SEND_*.
int put_invalidation(SendQueue &queue, std::uint32_t rkey, std::uint64_t flags,
                     std::uint64_t wr_id);

}  // namespace ibvexp::engine
