// Frames out of raw packet QPs: headers in the WQE, checksum and VLAN
// offloads, TCP segmentation, packet pacing.
#include <algorithm>

#include "base/log.h"
#include "model/device.h"
#include "model/eth_queue.h"
#include "model/requester.h"
#include "model/transmit.h"

namespace softhca {

namespace {

// The Ethernet segment of a WQE (struct mlx5_wqe_eth_seg).
constexpr u32 eth_segment = 16;
constexpr u32 header_at = 14;  // inline header bytes, as many as the word before says
constexpr u16 insert_vlan = 0x8000, insert_svlan = 0x0001;  // instead of a length

// What a QP may send at once after a pause, unless the application chose it.
constexpr u32 default_burst_bytes = 64 * 1024;

void put_vlan_tag(std::vector<u8> &frame, u16 type, u16 tci) {
  u8 tag[vlan_tag_bytes];
  store_be16(tag, (type & insert_svlan) != 0 ? ethertype_svlan : ethertype_cvlan);
  store_be16(tag + 2, tci);
  frame.insert(frame.begin() + 12, tag, tag + sizeof tag);
}

void apply_checksums(u8 *data, u32 bytes, u8 flags) {
  constexpr u8 l3_inner = 1 << 4, l4_inner = 1 << 5, l3 = 1 << 6, l4 = 1 << 7;
  if ((flags & (l3_inner | l4_inner | l3 | l4)) == 0) return;
  const EthFrame f = parse_frame(data, bytes);
  // The outer checksum covers the inner ones.
  if (f.tunnel) write_checksums(data, f.inner, (flags & l3_inner) != 0, (flags & l4_inner) != 0);
  write_checksums(data, f.outer, (flags & l3) != 0, (flags & l4) != 0);
}

// Length fields of the IP header behind the Ethernet header. Large segments
// come with any value in them.
void set_ip_length(u8 *frame, u32 bytes) {
  u32 at = 12;
  u16 type = load_be16(frame + at);
  while ((type == ethertype_cvlan || type == ethertype_svlan) && at + 6 <= bytes) {
    at += vlan_tag_bytes;
    type = load_be16(frame + at);
  }
  const u32 l3 = at + 2;
  if (type == ethertype_ipv4 && bytes >= l3 + 20)
    store_be16(frame + l3 + 2, static_cast<u16>(bytes - l3));
  if (type == ethertype_ipv6 && bytes >= l3 + 40)
    store_be16(frame + l3 + 4, static_cast<u16>(bytes - l3 - 40));
}

// Behind TCP or UDP; of other frames, wherever the request says.
u32 end_of_headers(const EthLayers &l, const u8 *frame, u32 otherwise) {
  if (l.l4_type == L4::tcp) return l.l4 + (frame[l.l4 + 12] >> 4) * 4u;
  return l.l4_type == L4::udp ? l.l4 + 8 : otherwise;
}

// Cuts segment `index` out of a large one. Returns its length; 0 if the headers are
// those of a tunnel, or end elsewhere. What is neither TCP nor UDP is cut as it is.
u32 build_segment(const SendWqe &w, u32 index, u8 *out) {
  constexpr u8 fin_psh = 0x09, cwr = 0x80;
  const EthWork &eth = w.eth;
  const u32 payload = static_cast<u32>(w.inline_data.size()) - eth.header_bytes;
  const u32 offset = index * eth.mss;
  const u32 part = std::min<u32>(eth.mss, payload - offset);
  std::memcpy(out, w.inline_data.data(), eth.header_bytes);
  std::memcpy(out + eth.header_bytes, w.inline_data.data() + eth.header_bytes + offset, part);
  const u32 bytes = eth.header_bytes + part;
  set_ip_length(out, bytes);
  const EthFrame f = parse_frame(out, bytes);
  const EthLayers &l = f.outer;
  if (f.tunnel || end_of_headers(l, out, eth.header_bytes) != eth.header_bytes) return 0;
  if (l.l3_type == L3::ipv4)
    store_be16(out + l.l3 + 4, static_cast<u16>(load_be16(out + l.l3 + 4) + index));
  if (l.l4_type == L4::udp) store_be16(out + l.l4 + 4, static_cast<u16>(bytes - l.l4));
  if (l.l4_type == L4::tcp) {
    store_be32(out + l.l4 + 4, load_be32(out + l.l4 + 4) + offset);
    if (index + 1 != eth.segments) out[l.l4 + 13] &= static_cast<u8>(~fin_psh);
    if (index != 0) out[l.l4 + 13] &= static_cast<u8>(~cwr);
  }
  write_checksums(out, l, (eth.checksums & 0x40) != 0, (eth.checksums & 0x80) != 0);
  return bytes;
}

u64 wire_ns(u64 bytes, u32 rate_kbps) { return bytes * 8 * 1'000'000 / rate_kbps; }

bool rate_allows(const Qp &qp, u64 now_ns) {
  if (qp.attr.rate_limit != 0 && now_ns < qp.send->pace_ns) return false;
  if (qp.request_schedule == nullptr) return true;
  qp.send->schedule_ns = qp.request_schedule->due(now_ns);
  return qp.send->schedule_ns <= now_ns;
}

void account(Qp &qp, u32 bytes, u64 now_ns) {
  if (qp.request_schedule != nullptr) qp.request_schedule->account(bytes, now_ns);
  const u32 rate = qp.attr.rate_limit;
  if (rate == 0) return;
  const u32 burst = qp.eth->max_burst_bytes != 0 ? qp.eth->max_burst_bytes : default_burst_bytes;
  const u64 credit = std::min(now_ns, wire_ns(burst, rate));
  u64 &next = qp.send->pace_ns;
  next = std::max(next, now_ns - credit) + wire_ns(bytes, rate);
}

// One frame to every process that may want it. False when a ring is full.
bool broadcast(const Qp &qp, SendWqe &w, const u8 *frame, u32 bytes, u64 now_ns) {
  PacketHeader h{};
  h.kind = PacketKind::ethernet;
  h.src_qpn = qp.qpn;
  h.port = std::max<u8>(qp.attr.port, 1);
  h.payload = bytes;
  FullRingWait &full_ring_wait = process().full_ring_wait;
  u16 slots[max_slots];
  const u32 n = process().fabric->ethernet_slots(slots, max_slots);
  for (u32 i = 0; i < n; ++i) {
    if (slots[i] < w.eth.next_slot) continue;  // served before a ring was full
    if (transmit(slots[i], h, nullptr, 0, frame) != Sent::full) {
      full_ring_wait.has_room(slots[i]);
      continue;
    }
    if (!full_ring_wait.goes_on(slots[i], now_ns)) {
      SOFTHCA_LOG(debug, "QP %#x: a frame is lost: slot %u has stopped", qp.qpn, slots[i]);
      continue;
    }
    w.eth.next_slot = slots[i];
    return false;
  }
  w.eth.next_slot = 0;
  count_sent(*qp.device, h, frame);
  return true;
}

}  // namespace

u32 eth_segment_bytes(const u8 *segment, size_t room) {
  if (room < eth_segment) return 0;
  const u16 size = load_be16(segment + 12);
  if ((size & insert_vlan) != 0 || size <= eth_segment - header_at) return eth_segment;
  const u32 bytes =
      eth_segment + static_cast<u32>(align_up(size - (eth_segment - header_at), wqe_ds));
  return bytes <= room ? bytes : 0;
}

Syndrome prepare_frames(const Qp &qp, const u8 *segment, SendWqe &w) {
  EthWork &eth = w.eth;
  const bool large = w.opcode == WqeOpcode::tso;
  const u16 size = load_be16(segment + 12);
  const bool tag = (size & insert_vlan) != 0;
  eth.checksums = segment[4];
  eth.mss = load_be16(segment + 6);
  eth.header_bytes = tag ? 0 : size;

  // What is not sent is not gathered.
  if (large && w.length > qp.device->caps.max_tso) return Syndrome::local_length;
  if (!large && u64{eth.header_bytes} + w.length > max_frame_bytes) {
    w.spans.clear();
    return Syndrome::ok;
  }
  std::vector<u8> all(u64{eth.header_bytes} + w.length);
  std::memcpy(all.data(), segment + header_at, eth.header_bytes);
  if (w.length != 0 && !read_spans(w.spans, 0, all.data() + eth.header_bytes, w.length))
    return Syndrome::local_protection;
  w.spans.clear();
  if (all.size() < eth_header_bytes) return Syndrome::local_qp_op;
  if (tag) put_vlan_tag(all, size, load_be16(segment + header_at));

  if (!large) {
    if (all.size() < min_frame_bytes) all.resize(min_frame_bytes);
    eth.segments = all.size() <= max_frame_bytes ? 1 : 0;
    apply_checksums(all.data(), static_cast<u32>(all.size()), eth.checksums);
    w.inline_data = std::move(all);
    return Syndrome::ok;
  }
  if (eth.mss == 0 || tag || eth.header_bytes < eth_header_bytes) return Syndrome::local_qp_op;
  eth.segments = w.length == 0 ? 1 : (w.length + eth.mss - 1) / eth.mss;
  w.inline_data = std::move(all);
  if (eth.header_bytes + eth.mss > max_frame_bytes &&
      w.length > max_frame_bytes - eth.header_bytes) {
    eth.segments = 0;
    return Syndrome::ok;
  }
  u8 first[max_frame_bytes];
  return build_segment(w, 0, first) != 0 ? Syndrome::ok : Syndrome::local_qp_op;
}

Syndrome add_packets(const Qp &qp, const u8 *segment, u32 each, SendWqe &w, std::vector<u8> &all) {
  if (w.length > qp.device->caps.max_tso) return Syndrome::local_length;
  std::vector<u8> gathered(w.length);
  if (w.length != 0 && !read_spans(w.spans, 0, gathered.data(), w.length))
    return Syndrome::local_protection;
  w.spans.clear();
  w.inline_data.clear();
  for (u32 at = 0; at < gathered.size();) {
    const u32 left = static_cast<u32>(gathered.size()) - at;
    const u32 bytes = each != 0 ? std::min(each, left) : left;
    if (bytes < eth_header_bytes) return Syndrome::local_qp_op;
    const size_t begin = all.size();
    all.insert(all.end(), gathered.begin() + at, gathered.begin() + at + bytes);
    at += bytes;
    if (bytes < min_frame_bytes) all.resize(begin + min_frame_bytes);
    apply_checksums(all.data() + begin, static_cast<u32>(all.size() - begin), segment[4]);
    w.ends.push_back(static_cast<u32>(all.size()));
  }
  return Syndrome::ok;
}

Syndrome finish_packets(SendWqe &w, std::vector<u8> &all) {
  if (w.ends.empty()) return Syndrome::local_qp_op;
  w.eth.segments = static_cast<u32>(w.ends.size());
  w.inline_data = std::move(all);
  w.length = static_cast<u32>(w.inline_data.size());
  return Syndrome::ok;
}

bool transmit_frames(Qp &qp, SendWqe &w, u64 now_ns) {
  const bool several = !w.ends.empty();
  const bool large = w.opcode == WqeOpcode::tso && !several;
  const bool up = qp.device->up(std::max<u8>(qp.attr.port, 1));
  for (EthWork &eth = w.eth; up && eth.segment < eth.segments; ++eth.segment) {
    // A frame that waits for a ring is paid for already.
    if (eth.next_slot == 0 && !rate_allows(qp, now_ns)) return false;
    u8 cut[max_frame_bytes];
    const u32 begin = several && eth.segment != 0 ? w.ends[eth.segment - 1] : 0;
    const u8 *frame = large ? cut : w.inline_data.data() + begin;
    const u32 bytes = large     ? build_segment(w, eth.segment, cut)
                      : several ? w.ends[eth.segment] - begin
                                : static_cast<u32>(w.inline_data.size());
    if (bytes > max_frame_bytes) continue;  // the wire does not take it
    if (eth.next_slot == 0) account(qp, bytes, now_ns);
    if (!broadcast(qp, w, frame, bytes, now_ns)) return false;
  }
  w.done = true;
  return true;
}

}  // namespace softhca
