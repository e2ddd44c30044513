// Frames of raw packet queue pairs that the fast path does not write: the header is
// in several pieces, or the device cuts the frame into several.
#pragma once

#include "translate/queue/engine/send_queue.h"

namespace ibvexp::engine {

// Each returns 0, or an errno value, and has posted nothing then.
int put_frame(SendQueue &queue, const ibv_send_wr &wr);
int put_frame(SendQueue &queue, const ibv_exp_send_wr &wr);
int put_segmented(SendQueue &queue, const ibv_send_wr &wr);
int put_segmented(SendQueue &queue, const ibv_exp_send_wr &wr);

}  // namespace ibvexp::engine
