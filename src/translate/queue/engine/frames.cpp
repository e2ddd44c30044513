#include "translate/queue/engine/frames.h"

#include "translate/queue/engine/entry_writer.h"
#include "translate/queue/engine/post_send.h"
#include "translate/queue/engine/request.h"

#include "translate/queue/direct/wqe.h"

#include <cerrno>

namespace ibvexp::engine {

namespace {

using direct::Gather;

constexpr std::uint32_t shortest_header = 14;

template <class Wr>
std::uint8_t checksums_of(const SendQueue &queue, const Wr &wr, int &error) {
  if ((flags_of(wr) & checksum_flag(&wr)) == 0) return 0;
  if (!queue.checksums) error = EINVAL;
  return MLX5_ETH_WQE_L3_CSUM | MLX5_ETH_WQE_L4_CSUM;
}

// What the data behind the header takes. 0 or an errno value.
template <class Wr>
int measure(const SendQueue &queue, const Wr &wr, const Gather &data, std::uint32_t &segments) {
  if ((flags_of(wr) & IBV_SEND_INLINE) != 0) {
    const std::uint64_t bytes = data.remaining();
    if (bytes > queue.max_inline) return ENOMEM;
    segments += bytes == 0 ? 0 : segments_of(sizeof(std::uint32_t) + bytes);
    return 0;
  }
  Gather walk = data;
  for (ibv_sge piece; walk.piece(piece);) {
    if (!is_length(piece.length)) return EINVAL;
    ++segments;
  }
  return 0;
}

template <class Wr>
int append_data(const SendQueue &queue, const Wr &wr, Gather data, EntryWriter &entry) {
  if ((flags_of(wr) & IBV_SEND_INLINE) == 0) {
    for (ibv_sge piece; data.piece(piece);)
      write_data(entry.segment(), piece.addr, piece.length, piece.lkey);
    return 0;
  }
  ibv_sge pieces[max_segments];
  int count = 0;
  while (count < int{max_segments} && data.piece(pieces[count])) ++count;
  const std::uint32_t more = put_inline(queue, entry.at(), pieces, count, 0);
  if (more == too_long) return ENOMEM;
  entry.skip(more);
  return 0;
}

template <class Wr>
int put(SendQueue &queue, const Wr &wr) {
  int error = 0;
  const std::uint8_t checksums = checksums_of(queue, wr, error);
  if (error != 0) return error;
  Gather data(wr.sg_list, static_cast<std::uint32_t>(wr.num_sge));
  if (data.remaining() < shortest_header) return EINVAL;
  std::uint8_t header[eth_inline_bytes] = {};
  const std::uint32_t bytes = data.take(header, eth_inline_bytes);
  std::uint32_t segments = 3;
  if ((error = measure(queue, wr, data, segments)) != 0) return error;
  EntryWriter entry(queue);
  if (!entry.fits(segments)) return EINVAL;
  std::uint8_t ethernet[2 * segment_bytes];
  write_ethernet(ethernet, checksums, header);
  store(ethernet + 12, be(static_cast<std::uint16_t>(bytes)));
  entry.copy(ethernet, sizeof(ethernet));
  if ((error = append_data(queue, wr, data, entry)) != 0) return error;
  entry.commit(MLX5_OPCODE_SEND, 0, flags_of(wr), 0, wr.wr_id);
  return 0;
}

// The header of each piece is in the entry: behind 14 bytes of the Ethernet
// segment, whole segments.
template <class Wr>
int put_cut(SendQueue &queue, const Wr &wr) {
  int error = 0;
  const std::uint8_t checksums = checksums_of(queue, wr, error);
  if (error != 0) return error;
  const std::uint32_t header = wr.tso.hdr_sz;
  if (header < shortest_header || header > queue.max_tso_header) return EINVAL;
  const Gather data(wr.sg_list, static_cast<std::uint32_t>(wr.num_sge));
  if (data.remaining() > queue.max_tso) return EINVAL;
  constexpr std::uint32_t in_front = 14;
  std::uint32_t segments = 1 + segments_of(in_front + header);
  if ((error = measure(queue, wr, data, segments)) != 0) return error;
  EntryWriter entry(queue);
  if (!entry.fits(segments)) return EINVAL;
  std::uint8_t first[segment_bytes] = {};
  first[4] = checksums;
  store(first + 6, be(wr.tso.mss));
  store(first + 12, be(static_cast<std::uint16_t>(header)));
  const auto *from = static_cast<const std::uint8_t *>(wr.tso.hdr);
  std::memcpy(first + in_front, from, 2);
  entry.copy(first, sizeof(first));
  if (header > 2) entry.copy(from + 2, header - 2);
  if ((error = append_data(queue, wr, data, entry)) != 0) return error;
  entry.commit(MLX5_OPCODE_TSO, 0, flags_of(wr), 0, wr.wr_id);
  return 0;
}

}  // namespace

int put_frame(SendQueue &queue, const ibv_send_wr &wr) { return put(queue, wr); }
int put_frame(SendQueue &queue, const ibv_exp_send_wr &wr) { return put(queue, wr); }
int put_segmented(SendQueue &queue, const ibv_send_wr &wr) { return put_cut(queue, wr); }
int put_segmented(SendQueue &queue, const ibv_exp_send_wr &wr) { return put_cut(queue, wr); }

}  // namespace ibvexp::engine
