// Requests of cross-channel: a master waits for completions, and releases what managed queues hold.
#pragma once

#include <infiniband/verbs_exp.h>

#include <cstdint>

namespace ibvexp::engine {

struct SendQueue;

// What cross-channel keeps of a queue.
struct Managed {
  bool is_master = false;     // may wait and release; send queues only
  bool is_slave = false;      // does what a master has released
  std::uint32_t kept = 0;     // requests released, as of the last WAIT_EN_LAST
  std::uint32_t longest = 0;  // count since
  std::uint32_t block = 0;    // send queues: where the first of the others begins

  void reset() { kept = longest = block = 0; }
};

// IBV_EXP_WR_CQE_WAIT, SEND_ENABLE or RECV_ENABLE, into the queue of a master, which is locked. 0
// or an errno value.
//
// Counts go on from where the last request with IBV_EXP_SEND_WAIT_EN_LAST left them: requests
// without it count from the same place.
int put_managing(SendQueue &queue, std::uint32_t opcode, const ibv_exp_send_wr &wr);

}  // namespace ibvexp::engine
