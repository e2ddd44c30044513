// Writes one entry into a send queue, segment by segment, wrapping at the end of the
// ring. The device sees nothing of it before commit().
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

  // Whether an entry of that many segments may be written. Check before writing.
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

  // The rest of the first block, after the control segment. Only as the first call.
  std::uint8_t *rest_of_block() {
    std::uint8_t *here = at_;
    at_ = first_ + block_bytes;
    if (at_ == queue_.end) at_ = queue_.begin;
    segments_ = block_bytes / segment_bytes;
    return here;
  }

  // Copies into whole segments; the rest of the last one is zeroed.
  void copy(const void *data, std::size_t bytes) {
    const auto *from = static_cast<const std::uint8_t *>(data);
    for (; bytes > segment_bytes; bytes -= segment_bytes, from += segment_bytes)
      std::memcpy(segment(), from, segment_bytes);
    std::uint8_t *last = segment();
    std::memset(last, 0, segment_bytes);
    std::memcpy(last, from, bytes);
  }

  // For put_inline(), which writes at at(); skip() then counts its segments.
  std::uint8_t *at() const { return at_; }
  void skip(std::uint32_t segments) {
    segments_ += segments;
    at_ += std::size_t{segments} * segment_bytes;
    if (at_ >= queue_.end) at_ -= queue_.end - queue_.begin;
  }

  // flags: IBV_SEND_*. imm: network order. completion_opcode: if it does not follow from the entry.
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
