// Taking the unread completions of a queue out, and moving them into another ring.
#include "translate/queue/engine/barrier.h"
#include "translate/queue/engine/complete.h"

namespace ibvexp::engine {

namespace {

// The entry as the device wrote it: of 128 bytes the half in front, too.
std::uint8_t *whole(const CompletionQueue &queue, std::uint32_t index) {
  return queue.entry(index) + cqe_bytes - queue.entry_bytes;
}

// Whether the completion is of the queue; its place in a shared queue is free then.
// A shared queue that was not posted to through us is filled by a program with its own data path.
bool takes_out(Endpoint &of, Cqe cqe) {
  if (of.tag != cqe.tag()) return false;
  if (is_of_receive(opcode_of(cqe.op_own())) && of.shared != nullptr && of.shared->is_used())
    of.shared->free_entry(cqe.counter());
  return true;
}

// With the first unread completion of a queue that has some. The queue is locked.
[[gnu::noinline]] void clean_from(CompletionQueue &queue, std::uint32_t first, Endpoint &endpoint) {
  std::uint32_t end = first;
  std::uint8_t op_own = 0;
  // The queue pair is in RESET: what the device adds from here on is of others.
  for (; end - first <= queue.mask && queue.has(end, op_own); ++end)
    if (is_compressed(op_own)) queue.unpack(end);

  std::uint32_t freed = 0;
  for (std::uint32_t index = end; index-- != first;) {
    if (takes_out(endpoint, Cqe(queue.entry(index)))) {
      ++freed;
    } else if (freed != 0) {
      std::uint8_t *to = whole(queue, index + freed);
      std::memcpy(to, whole(queue, index), queue.entry_bytes);
      std::uint8_t &last = to[queue.entry_bytes - 1];
      last = static_cast<std::uint8_t>((last & ~1) | queue.owner(index + freed));
    }
  }
  if (freed == 0) return;
  before_record();
  queue.release(first + freed);
}

}  // namespace

void clean(CompletionQueue &queue, Endpoint &endpoint) {
  const Guard guard(queue.lock);
  if (queue.last == &endpoint) queue.last = no_endpoint();
  std::uint8_t op_own = 0;
  if (queue.has(*queue.consumed, op_own)) clean_from(queue, *queue.consumed, endpoint);
}

bool move_to(CompletionQueue &queue, std::uint8_t *ring, std::uint32_t entries) {
  const std::uint32_t first = *queue.consumed, bytes = queue.entry_bytes;
  bool closed = false;
  for (std::uint32_t index = first; index - first <= queue.mask && !closed; ++index) {
    std::uint8_t op_own = 0;
    if (!queue.has(index, op_own)) break;
    if (is_compressed(op_own)) queue.unpack(index);
    closed = opcode_of(op_own) == MLX5_CQE_RESIZE_CQ;
    if (closed) break;
    // Each moves up by the entry of the device, which counts like a completion.
    std::uint8_t *to = ring + std::size_t{(index + 1) & (entries - 1)} * bytes;
    std::memcpy(to, whole(queue, index), bytes);
    std::uint8_t &last = to[bytes - 1];
    last = static_cast<std::uint8_t>((last & ~1) | (((index + 1) & entries) != 0 ? 1 : 0));
  }
  queue.entries = ring + (bytes - cqe_bytes);
  queue.mask = entries - 1;
  queue.size = entries;
  before_record();
  queue.release(first + 1);
  return closed;
}

}  // namespace ibvexp::engine
