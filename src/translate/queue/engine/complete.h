// What a completion means for the queue that it is of: which request it was, and
// which places in the queue are free again.
#pragma once

#include "translate/queue/engine/completion_queue.h"

namespace ibvexp::engine {

// Data inside a completion (scatter to CQE), to where the request wanted it. False
// if there is more than that.
bool scatter_inline(const std::uint8_t *segments, std::uint32_t count, const std::uint8_t *data,
                    std::uint32_t bytes);

// The same for the answer to a request in the send queue.
bool scatter_answer(const SendQueue &queue, Cqe cqe);

// The request of a send completion. It and those before it are done.
[[gnu::always_inline]] inline const Sent &complete_send(SendQueue &queue, Cqe cqe) {
  const Sent &sent = queue.sent[cqe.counter() & queue.mask];
  set_relaxed(queue.done, sent.count() + 1);
  return sent;
}

// Where a received message went.
struct Received {
  std::uint64_t wr_id;
  const std::uint8_t *list;  // of scatter segments
  std::uint32_t places;
};

[[gnu::always_inline]] inline std::uint64_t complete_own_receive(ReceiveQueue &queue) {
  const std::uint32_t tail = queue.counters->tail;
  set_relaxed(queue.counters->tail, tail + 1);
  return queue.ids[tail & queue.mask];
}

// The queue is locked.
[[gnu::always_inline]] inline std::uint64_t complete_shared(SharedQueue &queue, Cqe cqe) {
  const auto number = load<std::uint16_t>(cqe.bytes() + 60);
  const std::uint64_t id = queue.ids[be(number)];
  queue.give_back(number);
  return id;
}

[[gnu::always_inline]] inline std::uint64_t complete_receive(Endpoint &endpoint, Cqe cqe) {
  if (endpoint.shared != nullptr) {
    SharedQueue &shared = *endpoint.shared;
    const std::uint32_t index = cqe.counter();
    const std::uint64_t id = shared.ids[index];
    shared.free_entry(index);
    return id;
  }
  return complete_own_receive(endpoint.receive);
}

// The scatter list of a message that is being completed: before that.
inline Received place_of(const Endpoint &endpoint, Cqe cqe) {
  if (endpoint.shared != nullptr) {
    const SharedQueue &shared = *endpoint.shared;
    return {shared.ids[cqe.counter()], shared.scatter(cqe.counter()), shared.places()};
  }
  const ReceiveQueue &queue = endpoint.receive;
  const std::uint32_t tail = queue.counters->tail;
  return {queue.ids[tail & queue.mask], queue.scatter(tail), queue.places()};
}

}  // namespace ibvexp::engine
