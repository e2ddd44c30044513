// Writing receive requests into a queue of ours. The doorbell record is written
// apart.
#pragma once

#include "translate/queue/direct/queue.h"

namespace ibvexp::direct {

// One request of a scatter list, for which there is room. Returns 0 or an errno value, and
// has done nothing then. Inlined into what callers do per request.
inline int write_receive(ReceiveQueue &queue, const ibv_sge *list, std::uint32_t count,
                         std::uint64_t id) {
  const std::uint32_t pieces = queue.pieces();
  if (count > pieces) [[unlikely]]
    return EINVAL;
  std::uint8_t *at = queue.scatter(queue.head);
  std::uint8_t *const end = at + pieces * segment_bytes;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (!is_length(list[i].length)) [[unlikely]] {
      if (list[i].length == 0) continue;
      return EINVAL;
    }
    write_data(at, list[i].addr, list[i].length, list[i].lkey);
    at += segment_bytes;
  }
  if (at != end) write_end(at);
  queue.id(queue.head) = id;
  queue.head = static_cast<std::uint16_t>(queue.head + 1);
  return 0;
}

inline int put_receive(ReceiveQueue &queue, const ibv_sge *list, std::uint32_t count,
                       std::uint64_t id) {
  if (queue.room() == 0) [[unlikely]]
    return ENOMEM;
  return write_receive(queue, list, count, id);
}

}  // namespace ibvexp::direct
