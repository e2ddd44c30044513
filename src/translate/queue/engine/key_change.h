// UMR requests in the form that most have: an indirect key, filled from a list or a
// pattern that is in the request's entry.
#pragma once

#include "translate/queue/engine/send_queue.h"

namespace ibvexp::engine {

// Whether it has been posted: written straight into the queue. Anything else, what has
// to be refused too, is for lane/umr.cpp to judge; nothing has been done then.
bool put_key_change(SendQueue &queue, const ibv_exp_send_wr &wr);

}  // namespace ibvexp::engine
