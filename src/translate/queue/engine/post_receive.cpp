// Receive requests, as the device reads them.
#include <algorithm>
#include <cerrno>

#include "translate/queue/engine/barrier.h"
#include "translate/queue/engine/completion_queue.h"
#include "translate/queue/engine/post_shared.h"

namespace ibvexp::engine {

namespace {

// Writes a scatter list of one or more into an entry that ends there. Pieces without bytes
// take no place.
template <bool shuffles>
[[gnu::always_inline]] inline void put_pieces(std::uint8_t *at, const std::uint8_t *end,
                                              const ibv_sge *piece, std::uint32_t count) {
  const ibv_sge *const last = piece + count;
  // Both addresses advance by as much.
  static_assert(sizeof(ibv_sge) == segment_bytes);
  auto distance = reinterpret_cast<std::uintptr_t>(at) - reinterpret_cast<std::uintptr_t>(piece);
  const auto place_of = [&](const ibv_sge *of) {
    return reinterpret_cast<std::uint8_t *>(reinterpret_cast<std::uintptr_t>(of) + distance);
  };
  do {
    if (piece->length != 0) [[likely]]
      write_piece<shuffles>(place_of(piece), *piece);
    else distance -= segment_bytes;
  } while (++piece != last);
  if (place_of(piece) != end) write_end(place_of(piece));
}

// One piece needs no loop.
[[gnu::always_inline]] inline void put_piece(std::uint8_t *place, const std::uint8_t *end,
                                             const ibv_sge &piece) {
  const std::uint64_t sizes = size_and_key(piece);
  if (static_cast<std::uint32_t>(sizes) != 0) [[likely]] {
    write_piece(place, piece.addr, sizes);
    place += segment_bytes;
  }
  if (place != end) write_end(place);
}

template <bool shuffles>
[[gnu::always_inline]] inline void put_list(std::uint8_t *at, const std::uint8_t *end,
                                            const ibv_sge *piece, std::uint32_t count) {
  if (count != 0) [[likely]]
    return put_pieces<shuffles>(at, end, piece, count);
  if (at != end) write_end(at);
}

// Whether that many entries are free, although the completions that were polled say
// otherwise. The newest one that the device has written counts, whoever reads it. The queue is
// locked.
[[gnu::cold, gnu::noinline]] bool has_room(Endpoint &of, std::uint32_t count) {
  ReceiveQueue &queue = of.receive;
  const std::uint32_t head = queue.counters->head, tail = relaxed(queue.counters->tail);
  if (static_cast<std::int32_t>(queue.done - tail) < 0) queue.done = tail;
  const auto is_free = [&] { return queue.entries() - (head - queue.done) >= count; };
  CompletionQueue *const completions = of.completes_on[1];
  if (is_free() || completions == nullptr) return is_free();
  const Guard guard(completions->lock);
  std::uint16_t most = 0;
  for (std::uint32_t i = 0; i < completions->size; ++i) {
    const Cqe cqe(completions->entry(i));
    if (cqe.tag() != of.tag || !is_of_receive(opcode_of(cqe.op_own()))) continue;
    const auto more = static_cast<std::uint16_t>(receives_done(cqe, queue.strides) - queue.done);
    // Otherwise of an earlier time.
    if (more <= head - queue.done) most = std::max(most, more);
  }
  queue.done += most;
  return is_free();
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

// The queue is locked.
template <bool shuffles>
[[gnu::noinline]] int post_chain(ReceiveQueue &queue, ibv_recv_wr *wr, ibv_recv_wr **bad) {
  // For all that the compiler knows, entries may lie over the queue itself.
  std::uint8_t *const buffer = queue.buffer;
  std::uint64_t *const ids = queue.ids.get();
  const std::uint32_t bytes = queue.entry_bytes, mask = queue.mask, skip = queue.skip;
  const std::uint32_t most = queue.max_pieces;
  const std::uint32_t first = queue.counters->head;
  std::uint32_t head = first;
  std::uint32_t limit = queue.limit();
  int error = 0;
  for (; wr != nullptr; wr = wr->next) {
    if (ReceiveQueue::is_full(head, limit)) [[unlikely]] {
      limit = queue.limit();
      if (ReceiveQueue::is_full(head, limit)) {
        error = ENOMEM;
        break;
      }
    }
    const auto pieces = static_cast<std::uint32_t>(wr->num_sge);
    if ((pieces - 1 >= most || wr->sg_list == nullptr) && pieces != 0) [[unlikely]] {
      error = EINVAL;
      break;
    }
    const std::uint32_t slot = head & mask;
    std::uint8_t *const entry = buffer + std::size_t{slot} * bytes;
    put_list<shuffles>(entry + skip, entry + bytes, wr->sg_list, pieces);
    ids[slot] = wr->wr_id;
    ++head;
  }
  if (head != first) [[likely]] {
    queue.counters->head = head;
    queue.ring();
  }
  queue.lock.unlock();
  if (error != 0 && bad != nullptr) [[unlikely]]
    *bad = wr;
  return error;
}

int post_any(ReceiveQueue &queue, ibv_recv_wr *wr, ibv_recv_wr **bad) {
  return queue.shuffles ? post_chain<true>(queue, wr, bad) : post_chain<false>(queue, wr, bad);
}

// One request, as most calls have, takes the registers of a function that calls none. The
// queue is locked.
template <bool single, bool shuffles>
[[gnu::always_inline]] inline int post_one(ReceiveQueue &queue, ibv_recv_wr *wr,
                                           ibv_recv_wr **bad) {
  const std::uint32_t head = queue.counters->head;
  const std::uint32_t pieces = single ? 1 : static_cast<std::uint32_t>(wr->num_sge);
  if (ReceiveQueue::is_full(head, queue.limit()) || pieces - 1 >= queue.max_pieces ||
      queue.held_for != nullptr) [[unlikely]]
    return post_any(queue, wr, bad);
  const std::uint32_t slot = head & queue.mask;
  std::uint8_t *const entry = queue.buffer + std::size_t{slot} * queue.entry_bytes;
  std::uint8_t *const at = entry + queue.skip, *const end = entry + queue.entry_bytes;
  if constexpr (single) put_piece(at, end, *wr->sg_list);
  else put_pieces<shuffles>(at, end, wr->sg_list, pieces);
  queue.ids[slot] = wr->wr_id;
  queue.counters->head = head + 1;
  before_record();
  __atomic_store_n(queue.record, be((head + 1) & 0xffff), __ATOMIC_RELEASE);
  queue.lock.unlock();
  return 0;
}

[[gnu::noinline]] int post_wide(ReceiveQueue &queue, ibv_recv_wr *wr, ibv_recv_wr **bad) {
  return queue.shuffles ? post_one<false, true>(queue, wr, bad)
                        : post_one<false, false>(queue, wr, bad);
}

int post_receive(ReceiveQueue &queue, ibv_recv_wr *wr, ibv_recv_wr **bad) {
  queue.lock.lock();
  if (wr == nullptr || wr->next != nullptr || wr->sg_list == nullptr)
    return post_any(queue, wr, bad);
  return wr->num_sge == 1 ? post_one<true, false>(queue, wr, bad) : post_wide(queue, wr, bad);
}

int post_list(Endpoint &of, const ibv_sge *list, std::uint32_t count) {
  ReceiveQueue &queue = of.receive;
  const Guard guard(queue.lock);
  const std::uint32_t head = queue.counters->head;
  if (ReceiveQueue::is_full(head, queue.limit()) && !has_room(of, 1)) [[unlikely]]
    return ENOMEM;
  if (count > queue.places()) [[unlikely]]
    return EINVAL;
  for (std::uint32_t i = 0; i < count; ++i)
    if (!is_length(list[i].length) && list[i].length != 0) [[unlikely]]
      return EINVAL;
  const std::uint32_t slot = head & queue.mask;
  std::uint8_t *const entry = queue.buffer + std::size_t{slot} * queue.entry_bytes;
  put_list<false>(entry + queue.skip, entry + queue.entry_bytes, list, count);
  queue.ids[slot] = 0;
  queue.counters->head = head + 1;
  queue.ring();
  return 0;
}

int post_pieces(Endpoint &of, const ibv_sge *list, std::uint32_t count) {
  ReceiveQueue &queue = of.receive;
  const Guard guard(queue.lock);
  const std::uint32_t first = queue.counters->head;
  const std::uint32_t limit = queue.limit();
  if ((ReceiveQueue::is_full(first, limit) || limit - first < count) && !has_room(of, count))
      [[unlikely]]
    return ENOMEM;
  std::uint32_t head = first;
  for (const ibv_sge *const end = list + count; list != end; ++list, ++head) {
    if (static_cast<std::int32_t>(list->length) < 0) [[unlikely]]
      return EINVAL;
    const std::uint32_t slot = head & queue.mask;
    std::uint8_t *const entry = queue.buffer + std::size_t{slot} * queue.entry_bytes;
    put_piece(entry + queue.skip, entry + queue.entry_bytes, *list);
    queue.ids[slot] = 0;
  }
  queue.counters->head = head;
  if (count != 0) queue.ring();
  return 0;
}

namespace {

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

// The queue is locked, here and below.
template <bool shuffles>
[[gnu::noinline]] int post_all(SharedQueue &queue, ibv_recv_wr *wr, ibv_recv_wr **bad) {
  std::uint8_t *const buffer = queue.buffer;
  std::uint64_t *const ids = queue.ids.get();
  const std::uint32_t bytes = queue.entry_bytes, most = queue.max_pieces;
  const auto tail = static_cast<std::uint32_t>(queue.counters->tail);
  auto head = static_cast<std::uint32_t>(queue.counters->head);
  std::uint32_t posted = 0;
  int error = 0;
  for (; wr != nullptr; wr = wr->next) {
    const auto pieces = static_cast<std::uint32_t>(wr->num_sge);
    const ibv_sge *const list = wr->sg_list;
    const bool empty = pieces - 1 >= most || list == nullptr;
    if (empty && pieces != 0) [[unlikely]] {
      error = EINVAL;
      break;
    }
    if (head == tail) [[unlikely]] {
      error = ENOMEM;
      break;
    }
    ids[head] = wr->wr_id;
    std::uint8_t *const entry = buffer + std::size_t{head} * bytes;
    head = SharedQueue::next_of(entry);
    if (!empty) [[likely]]
      put_pieces<shuffles>(entry + segment_bytes, entry + bytes, list, pieces);
    else if (bytes != segment_bytes) write_end(entry + segment_bytes);
    ++posted;
  }
  if (posted != 0) [[likely]] {
    queue.counters->head = static_cast<std::int32_t>(head);
    ring(queue, posted);
  }
  queue.lock.unlock();
  if (error != 0 && bad != nullptr) [[unlikely]]
    *bad = wr;
  return error;
}

// All of a chain of requests of one piece, most often. A piece fills an entry.
template <bool shuffles>
[[gnu::noinline]] int post_singles(SharedQueue &queue, ibv_recv_wr *wr, ibv_recv_wr **bad) {
  std::uint8_t *const buffer = queue.buffer;
  std::uint64_t *const ids = queue.ids.get();
  const auto tail = static_cast<std::uint32_t>(queue.counters->tail);
  auto head = static_cast<std::uint32_t>(queue.counters->head);
  std::uint32_t posted = 0;
  do {
    const std::uint64_t sizes = single_of(*wr);
    if (static_cast<std::uint32_t>(sizes) == 0 || head == tail) [[unlikely]]
      break;
    ids[head] = wr->wr_id;
    std::uint8_t *const entry = buffer + std::size_t{head} * (2 * segment_bytes);
    head = SharedQueue::next_of(entry);
    write_piece(entry + segment_bytes, wr->sg_list->addr, sizes);
    ++posted;
    wr = wr->next;
  } while (wr != nullptr);
  if (posted != 0) [[likely]] {
    queue.counters->head = static_cast<std::int32_t>(head);
    ring(queue, posted);
  }
  if (wr != nullptr) [[unlikely]]
    return post_all<shuffles>(queue, wr, bad);
  queue.lock.unlock();
  return 0;
}

// fills: one piece, which is taken, fills an entry.
template <bool fills, bool shuffles>
[[gnu::always_inline]] inline int post_locked(SharedQueue &queue, ibv_recv_wr *wr,
                                              ibv_recv_wr **bad) {
  if (wr == nullptr) [[unlikely]]
    return post_all<shuffles>(queue, wr, bad);
  if (wr->next != nullptr)
    return fills ? post_singles<shuffles>(queue, wr, bad) : post_all<shuffles>(queue, wr, bad);
  const auto head = static_cast<std::uint32_t>(queue.counters->head);
  const auto pieces = static_cast<std::uint32_t>(wr->num_sge);
  const std::uint64_t sizes = fills ? single_of(*wr) : 0;
  const bool usual = fills ? static_cast<std::uint32_t>(sizes) != 0
                           : pieces - 1 < queue.max_pieces && wr->sg_list != nullptr;
  if (!usual || head == static_cast<std::uint32_t>(queue.counters->tail)) [[unlikely]]
    return post_all<shuffles>(queue, wr, bad);
  queue.ids[head] = wr->wr_id;
  std::uint8_t *const entry = queue.entry(head);
  queue.counters->head = SharedQueue::next_of(entry);
  std::uint8_t *const at = entry + segment_bytes;
  if constexpr (fills) write_piece(at, wr->sg_list->addr, sizes);
  else put_pieces<shuffles>(at, entry + queue.entry_bytes, wr->sg_list, pieces);
  ring(queue, 1);
  queue.lock.unlock();
  return 0;
}

// When another thread holds the lock.
template <bool fills, bool shuffles>
[[gnu::cold, gnu::noinline]] int post_late(SharedQueue &queue, ibv_recv_wr *wr, ibv_recv_wr **bad) {
  queue.lock.lock();
  return post_locked<fills, shuffles>(queue, wr, bad);
}

// Calls nothing on its way, so that it needs few registers.
template <bool fills, bool shuffles>
int post_to(SharedQueue &queue, ibv_recv_wr *wr, ibv_recv_wr **bad) {
  if (!queue.lock.try_lock()) [[unlikely]]
    return post_late<fills, shuffles>(queue, wr, bad);
  return post_locked<fills, shuffles>(queue, wr, bad);
}

}  // namespace

SharedQueue::Post post_for(const SharedQueue &queue) {
  if (queue.max_pieces != 0 && queue.places() == 1)
    return queue.shuffles ? post_to<true, true> : post_to<true, false>;
  return queue.shuffles ? post_to<false, true> : post_to<false, false>;
}

}  // namespace ibvexp::engine
