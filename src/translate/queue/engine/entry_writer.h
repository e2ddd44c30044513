// Writes one entry into a send queue, segment by segment, over the end of the ring
// if need be. Nothing of it counts before commit().
#pragma once

#include "translate/queue/engine/segments.h"

namespace ibvexp::engine {

class EntryWriter {
 public:
  explicit EntryWriter(SendQueue &queue)
      : queue_(queue),
        slot_(*queue.posted & queue.mask),
        first_(queue.begin + (std::size_t{slot_} << log_block)),
        at_(first_ + segment_bytes) {}

  // Whether an entry of that many segments may be written. To be asked before.
  bool fits(std::uint32_t segments) const {
    return segments <= max_segments && blocks_of(segments) <= queue_.max_blocks;
  }

  std::uint8_t *segment() {
    std::uint8_t *here = at_;
    at_ += segment_bytes;
    if (at_ == queue_.end) at_ = queue_.begin;
    ++segments_;
    return here;
  }

  // A whole block, at the beginning of one.
  std::uint8_t *block() {
    std::uint8_t *here = at_;
    at_ += block_bytes;
    if (at_ == queue_.end) at_ = queue_.begin;
    segments_ += block_bytes / segment_bytes;
    return here;
  }

  // What follows the control segment in its block, before anything else.
  std::uint8_t *rest_of_block() {
    std::uint8_t *here = at_;
    at_ = first_ + block_bytes;
    if (at_ == queue_.end) at_ = queue_.begin;
    segments_ = block_bytes / segment_bytes;
    return here;
  }

  // Whole segments; what remains of the last one is zero.
  void copy(const void *data, std::size_t bytes) {
    const auto *from = static_cast<const std::uint8_t *>(data);
    for (; bytes > segment_bytes; bytes -= segment_bytes, from += segment_bytes)
      std::memcpy(segment(), from, segment_bytes);
    std::uint8_t *last = segment();
    std::memset(last, 0, segment_bytes);
    std::memcpy(last, from, bytes);
  }

  // What put_inline() has written from at() on.
  std::uint8_t *at() const { return at_; }
  void skip(std::uint32_t segments) {
    segments_ += segments;
    at_ += std::size_t{segments} * segment_bytes;
    if (at_ >= queue_.end) at_ -= queue_.end - queue_.begin;
  }

  // A request with those IBV_SEND_*; the opcode of its completion where the entry does not tell; imm in network order.
  void commit(std::uint32_t opcode, std::uint32_t modifier, std::uint64_t flags, std::uint32_t imm,
              std::uint64_t wr_id, std::uint32_t completion_opcode = 0) {
    std::uint32_t control = queue_.control[flags & 7];
    if ((flags & IBV_SEND_FENCE) == 0) control |= queue_.fence;
    queue_.fence = 0;
    write_control(first_, control_head(*queue_.posted, opcode, queue_.number, segments_, modifier),
                  control, imm);
    queue_.sent[slot_] = {wr_id, std::uint64_t{completion_opcode} << 32 | queue_.count};
    *queue_.posted += blocks_of(segments_);
    ++queue_.count;
  }

  // The next entry waits until this one, which changes a key, has taken effect.
  void fence_next() { queue_.fence = MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE; }

 private:
  SendQueue &queue_;
  std::uint32_t slot_;
  std::uint8_t *first_;
  std::uint8_t *at_;
  std::uint32_t segments_ = 1;
};

}  // namespace ibvexp::engine
