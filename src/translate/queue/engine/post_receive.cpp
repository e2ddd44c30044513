// Receive requests, as the device reads them.
#include "translate/queue/engine/receive_queue.h"
#include "translate/queue/engine/shared_queue.h"

#include "translate/queue/engine/barrier.h"

#include <cerrno>

namespace ibvexp::engine {

namespace {

// Writes a scatter list into an entry with that many places. Pieces without bytes
// take none.
[[gnu::always_inline]] inline void put_list(std::uint8_t *at, std::uint32_t places,
                                            const ibv_sge *piece, std::uint32_t count) {
  std::uint8_t *const end = at + places * segment_bytes;
  for (const ibv_sge *const last = piece + count; piece != last; ++piece) {
    if (piece->length == 0) [[unlikely]]
      continue;
    write_data(at, piece->addr, piece->length, piece->lkey);
    at += segment_bytes;
  }
  if (at != end) write_end(at);
}

}  // namespace

void ReceiveQueue::ring() {
  if (held_for != nullptr) [[unlikely]] {
    if (held_for->state < IBV_QPS_RTR) return;
    held_for = nullptr;
  }
  before_record();
  __atomic_store_n(record, be(counters->head & 0xffff), __ATOMIC_RELEASE);
}

int post_receive(ReceiveQueue &queue, ibv_recv_wr *wr, ibv_recv_wr **bad) {
  const Guard guard(queue.lock);
  const std::uint32_t first = queue.counters->head;
  std::uint32_t head = first;
  std::uint32_t room = queue.room();
  int error = 0;
  for (; wr != nullptr; wr = wr->next, ++head, --room) {
    if (room == 0) [[unlikely]] {
      room = queue.entries() - (head - relaxed(queue.counters->tail));
      if (room == 0) {
        error = ENOMEM;
        break;
      }
    }
    const auto pieces = static_cast<std::uint32_t>(wr->num_sge);
    if (pieces > queue.max_pieces) [[unlikely]] {
      error = EINVAL;
      break;
    }
    const std::uint32_t slot = head & queue.mask;
    put_list(queue.scatter(slot), queue.places(), wr->sg_list, pieces);
    queue.ids[slot] = wr->wr_id;
  }
  if (head != first) [[likely]] {
    queue.counters->head = head;
    queue.ring();
  }
  if (error != 0 && bad != nullptr) [[unlikely]]
    *bad = wr;
  return error;
}

int post_receive(SharedQueue &queue, ibv_recv_wr *wr, ibv_recv_wr **bad) {
  const Guard guard(queue.lock);
  std::uint16_t posted = 0;
  int error = 0;
  for (; wr != nullptr; wr = wr->next, ++posted) {
    const auto pieces = static_cast<std::uint32_t>(wr->num_sge);
    if (pieces > queue.max_pieces) [[unlikely]] {
      error = EINVAL;
      break;
    }
    const std::int32_t head = queue.counters->head;
    if (head == queue.counters->tail) [[unlikely]] {
      error = ENOMEM;
      break;
    }
    const auto slot = static_cast<std::uint32_t>(head);
    queue.ids[slot] = wr->wr_id;
    queue.counters->head = SharedQueue::next_of(queue.entry(slot));
    put_list(queue.scatter(slot), queue.places(), wr->sg_list, pieces);
  }
  if (posted != 0) [[likely]] {
    const auto counter = static_cast<std::uint16_t>(*queue.counter + posted);
    *queue.counter = counter;
    before_record();
    __atomic_store_n(queue.record, be(std::uint32_t{counter}), __ATOMIC_RELEASE);
  }
  if (error != 0 && bad != nullptr) [[unlikely]]
    *bad = wr;
  return error;
}

}  // namespace ibvexp::engine
