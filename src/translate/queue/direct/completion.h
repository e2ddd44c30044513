// Completions of a queue of ours, as the verbs report them.
#pragma once

#include "translate/queue/direct/queue.h"

namespace ibvexp::direct {

// ibv_poll_cq() for a queue of ours. A completion of a multi-packet queue is not
// taken: ibv_wc has no room for it, and -1 with ENOTSUP is the answer; failed ones
// are.
int poll(CompletionQueue &cq, int count, ibv_wc *wc);

// A completion of a multi-packet queue.
struct MultiPacket {
  bool is_one;
  bool ends_entry;
  Strides strides;
};

// What ibv_wc has no room for.
struct Taken {
  const Endpoint *endpoint;
  MultiPacket packet;
  std::uint64_t timestamp;  // cycles; 0: none
};

// Takes one completion under the lock of the queue. 1 if there was one, 0 if
// not, -1 and errno for one that ibv_wc has no room for. The caller releases what was
// consumed. taken is null where strides cannot be reported.
int take(CompletionQueue &cq, ibv_wc &wc, Taken *taken);

// Takes the completions of a queue out that have not been read.
void drop_completions(CompletionQueue &cq, std::uint32_t user_index);

// ibv_req_notify_cq() for a queue of ours.
void request_notification(CompletionQueue &cq, bool solicited_only);

}  // namespace ibvexp::direct
