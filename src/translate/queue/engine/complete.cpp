#include "translate/queue/engine/complete.h"

#include <algorithm>

namespace ibvexp::engine {

bool scatter_inline(const std::uint8_t *segments, std::uint32_t count, const std::uint8_t *data,
                    std::uint32_t bytes) {
  for (std::uint32_t i = 0; i < count && bytes != 0; ++i, segments += segment_bytes) {
    const auto length = load_be<std::uint32_t>(segments);
    if (load_be<std::uint32_t>(segments + 4) == no_key && length == 0) break;
    const std::uint32_t part = std::min(length & 0x7fffffffu, bytes);
    std::memcpy(reinterpret_cast<void *>(load_be<std::uint64_t>(segments + 8)), data, part);
    data += part;
    bytes -= part;
  }
  return bytes == 0;
}

bool scatter_answer(const SendQueue &queue, Cqe cqe) {
  const std::uint8_t *at = queue.begin + (std::size_t{cqe.counter() & queue.mask} << log_block);
  std::uint32_t segments = at[7] & max_segments;
  const std::uint8_t opcode = at[3];
  std::uint32_t skip = 2;  // control and remote address
  std::uint32_t bytes = cqe.byte_count();
  if (opcode == MLX5_OPCODE_ATOMIC_CS || opcode == MLX5_OPCODE_ATOMIC_FA) {
    ++skip;
    bytes = 8;
  }
  if (segments < skip) return false;
  segments -= skip;
  const std::uint8_t *from = at + skip * segment_bytes;
  std::uint8_t list[max_segments * segment_bytes];
  for (std::uint32_t i = 0; i < segments; ++i, from += segment_bytes) {
    if (from >= queue.end) from -= queue.end - queue.begin;
    std::memcpy(list + i * segment_bytes, from, segment_bytes);
  }
  return scatter_inline(list, segments, cqe.inline_data(), bytes);
}

}  // namespace ibvexp::engine
