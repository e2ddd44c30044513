// Posting to a shared receive queue.
#pragma once

#include "translate/queue/engine/barrier.h"
#include "translate/queue/engine/shared_queue.h"

namespace ibvexp::engine {

// The rest of post_receive(), with its answers. The queue is locked, but for the last.
int post_chain(SharedQueue &queue, ibv_recv_wr *wr, ibv_recv_wr **bad);
// For a chain that may begin with requests of one piece: all of it, most often. A piece fills
// an entry.
int post_singles(SharedQueue &queue, ibv_recv_wr *wr, ibv_recv_wr **bad);
// Where one piece does not fill an entry.
int post_wide(SharedQueue &queue, ibv_recv_wr *wr, ibv_recv_wr **bad);
// When somebody else has the lock.
[[gnu::cold]] int post_late(SharedQueue &queue, ibv_recv_wr *wr, ibv_recv_wr **bad);

[[gnu::always_inline]] inline void ring(SharedQueue &queue, std::uint32_t posted) {
  const auto counter = static_cast<std::uint16_t>(*queue.counter + posted);
  set_relaxed(*queue.counter, counter);
  set_relaxed(queue.posted, true);
  before_record();
  __atomic_store_n(queue.record, be(std::uint32_t{counter}), __ATOMIC_RELEASE);
}

// Length and key of a request of one piece, as most are; its length is 0 for others.
[[gnu::always_inline]] inline std::uint64_t single_of(const ibv_recv_wr &wr) {
  return wr.num_sge == 1 && wr.sg_list != nullptr ? size_and_key(*wr.sg_list) : 0;
}

// A piece fills an entry.
[[gnu::always_inline]] inline int post_locked(SharedQueue &queue, ibv_recv_wr *wr,
                                              ibv_recv_wr **bad) {
  if (wr == nullptr) [[unlikely]]
    return post_chain(queue, wr, bad);
  if (wr->next != nullptr) return post_singles(queue, wr, bad);
  const auto head = static_cast<std::uint32_t>(queue.counters->head);
  const std::uint64_t sizes = single_of(*wr);
  if (static_cast<std::uint32_t>(sizes) == 0 ||
      head == static_cast<std::uint32_t>(queue.counters->tail)) [[unlikely]]
    return post_chain(queue, wr, bad);
  queue.ids[head] = wr->wr_id;
  std::uint8_t *const entry = queue.entry(head);
  queue.counters->head = SharedQueue::next_of(entry);
  write_piece(entry + segment_bytes, wr->sg_list->addr, sizes);
  ring(queue, 1);
  queue.lock.unlock();
  return 0;
}

// 0, or a positive errno value with bad set. Calls nothing on its way, so that it needs few
// registers.
[[gnu::always_inline]] inline int post_receive(SharedQueue &queue, ibv_recv_wr *wr,
                                               ibv_recv_wr **bad) {
  if (!queue.lock.try_lock()) [[unlikely]]
    return post_late(queue, wr, bad);
  return queue.one_fills ? post_locked(queue, wr, bad) : post_wide(queue, wr, bad);
}

}  // namespace ibvexp::engine
