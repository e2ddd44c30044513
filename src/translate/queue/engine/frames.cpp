#include "translate/queue/engine/frames.h"

#include <cerrno>

#include "translate/queue/engine/entry_writer.h"
#include "translate/queue/engine/post_send.h"
#include "translate/queue/engine/request.h"

namespace ibvexp::engine {

namespace {

constexpr std::uint32_t shortest_header = 14;
constexpr std::uint32_t vlan_tag_bytes = 4;
constexpr std::uint32_t mac_bytes = 12;
constexpr std::uint32_t ethertype_vlan = 0x8100;
constexpr std::uint8_t all_checksums = MLX5_ETH_WQE_L3_CSUM | MLX5_ETH_WQE_L4_CSUM;

// What the data behind the header take. 0 or an errno value.
int measure(const SendQueue &queue, bool is_inline, const Gather &data, std::uint32_t &segments) {
  if (is_inline) {
    const std::uint64_t bytes = data.remaining();
    if (bytes > queue.max_inline) return ENOMEM;  // as the legacy provider had it
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

int append_data(const SendQueue &queue, bool is_inline, Gather data, EntryWriter &entry) {
  if (!is_inline) {
    for (ibv_sge piece; data.piece(piece);)
      write_data(entry.segment(), piece.addr, piece.length, piece.lkey);
    return 0;
  }
  ibv_sge pieces[max_segments];
  int count = 0;
  while (count < int{max_segments} && data.piece(pieces[count])) ++count;
  const std::uint32_t more = put_inline<0>(queue, entry.at(), pieces, count);
  if (more == too_long) return ENOMEM;
  entry.skip(more);
  return 0;
}

// The beginning of a frame leaves the gather list. A tag is put in by software: a device
// that wants the header inline cannot insert one.
std::uint32_t take_header(Gather &data, const std::uint16_t *tag, std::uint8_t *header) {
  if (tag == nullptr) return data.take(header, eth_inline_bytes);
  data.take(header, mac_bytes);
  store(header + mac_bytes, be(ethertype_vlan << 16 | *tag));
  const std::uint32_t bytes = mac_bytes + vlan_tag_bytes;
  return bytes + data.take(header + bytes, eth_inline_bytes - bytes);
}

template <class Wr>
bool wants_checksums(const Wr &wr) {
  return (flags_of(wr) & checksum_flag(&wr)) != 0;
}
template <class Wr>
bool is_inline(const Wr &wr) {
  return (flags_of(wr) & IBV_SEND_INLINE) != 0;
}

template <class Wr>
int put(SendQueue &queue, const Wr &wr) {
  return put_message(queue, {.data = Gather(wr.sg_list, static_cast<std::uint32_t>(wr.num_sge)),
                             .flags = static_cast<unsigned>(flags_of(wr)) & 0xf,
                             .checksums = wants_checksums(wr),
                             .wr_id = wr.wr_id});
}

// The header of each piece is in the entry: behind 14 bytes of the Ethernet
// segment, whole segments.
template <class Wr>
int put_cut(SendQueue &queue, const Wr &wr) {
  if (wants_checksums(wr) && !queue.checksums) return EINVAL;
  if (static_cast<std::uint32_t>(wr.num_sge) > queue.max_pieces) return EINVAL;
  const std::uint32_t header = wr.tso.hdr_sz;
  if (header < shortest_header || header > queue.max_tso_header) return EINVAL;
  const Gather data(wr.sg_list, static_cast<std::uint32_t>(wr.num_sge));
  constexpr std::uint32_t in_front = 14;
  std::uint32_t segments = 1 + segments_of(in_front + header);
  if (const int error = measure(queue, is_inline(wr), data, segments); error != 0) return error;
  EntryWriter entry(queue);
  if (!entry.fits(segments)) return EINVAL;
  std::uint8_t first[segment_bytes] = {};
  first[4] = wants_checksums(wr) ? all_checksums : 0;
  store(first + 6, be(wr.tso.mss));
  store(first + 12, be(static_cast<std::uint16_t>(header)));
  const auto *from = static_cast<const std::uint8_t *>(wr.tso.hdr);
  std::memcpy(first + in_front, from, 2);
  entry.copy(first, sizeof(first));
  if (header > 2) entry.copy(from + 2, header - 2);
  if (const int error = append_data(queue, is_inline(wr), data, entry); error != 0) return error;
  entry.commit(MLX5_OPCODE_TSO, 0, flags_of(wr), 0, wr.wr_id);
  return 0;
}

}  // namespace

int put_message(SendQueue &queue, const Message &message) {
  if (message.checksums && !queue.checksums) return EINVAL;
  Gather data = message.data;
  const bool frame = queue.transport == Transport::raw_packet;
  const bool in_entry = (message.flags & IBV_SEND_INLINE) != 0;
  // As libmlx5 counts, the header does not.
  std::uint8_t header[eth_inline_bytes] = {};
  std::uint32_t header_bytes = 0;
  if (frame) {
    if (data.remaining() < shortest_header) return EINVAL;
    header_bytes = take_header(data, message.tag, header);
  }
  std::uint32_t segments = frame ? 3 : 1;
  if (const int error = measure(queue, in_entry, data, segments); error != 0) return error;
  EntryWriter entry(queue);
  if (!entry.fits(segments)) return EINVAL;
  if (frame) {
    std::uint8_t ethernet[2 * segment_bytes];
    write_ethernet(ethernet, message.checksums ? all_checksums : 0, header);
    store(ethernet + 12, be(static_cast<std::uint16_t>(header_bytes)));
    entry.copy(ethernet, sizeof(ethernet));
  }
  if (const int error = append_data(queue, in_entry, data, entry); error != 0) return error;
  entry.commit(MLX5_OPCODE_SEND, 0, message.flags, 0, message.wr_id);
  return 0;
}

int put_frame(SendQueue &queue, const ibv_send_wr &wr) { return put(queue, wr); }
int put_frame(SendQueue &queue, const ibv_exp_send_wr &wr) { return put(queue, wr); }
int put_segmented(SendQueue &queue, const ibv_send_wr &wr) { return put_cut(queue, wr); }
int put_segmented(SendQueue &queue, const ibv_exp_send_wr &wr) { return put_cut(queue, wr); }

}  // namespace ibvexp::engine
