// Messages and frames that the fast paths do not write: the header of a frame is in
// several pieces, or gets a VLAN tag, or the device cuts the frame into several.
#pragma once

#include "translate/queue/engine/gather.h"
#include "translate/queue/engine/send_queue.h"

namespace ibvexp::engine {

// Each returns 0, or an errno value, and has posted nothing then.
int put_frame(SendQueue &queue, const ibv_send_wr &wr);
int put_frame(SendQueue &queue, const ibv_exp_send_wr &wr);
int put_segmented(SendQueue &queue, const ibv_send_wr &wr);
int put_segmented(SendQueue &queue, const ibv_exp_send_wr &wr);

// A send without anything else: a frame on a raw packet queue pair, a message on a
// connected one. Under the lock, and with room for one more request; the doorbell is
// the caller's. 0, or an errno value and nothing is written: EINVAL for a frame or piece
// of no possible length, or checksums that the device does not fill in; ENOMEM for more
// inline data than was granted.
struct Message {
  Gather data;
  unsigned flags = 0;                  // IBV_SEND_*
  bool checksums = false;              // of a frame
  const std::uint16_t *tag = nullptr;  // VLAN tag to put into a frame
  std::uint64_t wr_id = 0;
};
int put_message(SendQueue &queue, const Message &message);

}  // namespace ibvexp::engine
