// Frames into receive queues: cyclic and striding, offloads, completions.
#include <algorithm>

#include "base/log.h"
#include "model/device.h"
#include "model/eth_queue.h"
#include "model/responder.h"

namespace softhca {

namespace {

constexpr u64 pause_ns = 100'000'000;  // how long a frame waits for a WQE

// The bytes that reach memory: the frame, perhaps without its VLAN tag and
// with its check sequence.
struct Image {
  struct Piece {
    const u8 *data;
    u32 bytes;
  } pieces[3];
  u32 bytes = 0;
  bool stripped = false;
  u8 fcs[fcs_bytes];

  Image(const EthFrame &f, const ReceiveOffloads &o) {
    // Only the outermost tag is looked at, and only if it is a customer one.
    stripped = o.strip_vlan && f.outer.cvlan && load_be16(f.data + 12) == ethertype_cvlan;
    const u32 rest = stripped ? 12 + vlan_tag_bytes : 12;
    pieces[0] = {f.data, 12};
    pieces[1] = {f.data + rest, f.bytes - rest};
    pieces[2] = {fcs, 0};
    if (o.scatter_fcs) {
      // Least significant byte first, as on the wire.
      const u32 sum = frame_check_sequence(f.data, f.bytes);
      std::memcpy(fcs, &sum, fcs_bytes);
      pieces[2].bytes = fcs_bytes;
    }
    for (const Piece &p : pieces) bytes += p.bytes;
  }
  bool write(const SpanList &spans, u64 offset) const {
    for (const Piece &p : pieces) {
      if (p.bytes != 0 && !write_spans(spans, offset, p.data, p.bytes)) return false;
      offset += p.bytes;
    }
    return true;
  }
};

// What completions report about a frame.
Cqe describe(const EthFrame &f, const Image &image, const ReceiveOffloads &o, const RssResult &rss,
             u32 flow_tag) {
  constexpr u8 l2_ok = 1, l3_ok = 2, l4_ok = 4;
  constexpr u8 vlan_stripped = 1, ip_fragment = 0x80, tunneled = 1, outer_ipv6 = 2;
  constexpr u8 tcp_no_ack = 1, udp = 2, tcp_empty_ack = 3, tcp_ack = 4;
  Cqe c;
  const bool inner = o.tunnel && f.tunnel;
  const EthLayers &l = inner ? f.inner : f.outer;
  if (inner) c.raw[0] = tunneled | (f.outer.l3_type == L3::ipv6 ? outer_ipv6 : 0);
  store_be32(c.raw + 12, rss.hash);
  c.raw[16] = rss.type;
  store_be16(c.raw + 20,
             ones_complement_sum(f.data + eth_header_bytes, f.bytes - eth_header_bytes));
  c.raw[28] = l2_ok;
  if (l3_checksum_ok(f.data, l)) c.raw[28] |= l3_ok;
  if (l4_checksum_ok(f.data, l)) c.raw[28] |= l4_ok;
  u8 l4 = 0;
  if (l.l4_type == L4::udp) l4 = udp;
  if (l.l4_type == L4::tcp) {
    const bool ack = (f.data[l.l4 + 13] & 0x10) != 0;
    const u32 header = (f.data[l.l4 + 12] >> 4) * 4u;
    l4 = !ack ? tcp_no_ack : l.end > l.l4 + header ? tcp_ack : tcp_empty_ack;
  }
  c.raw[29] = static_cast<u8>(l4 << 4 | static_cast<u8>(l.l3_type) << 2);
  if (l.fragment) c.raw[29] |= ip_fragment;
  if (image.stripped) {
    c.raw[29] |= vlan_stripped;
    store_be16(c.raw + 30, f.outer.vlan_tci);
  }
  c.opcode_qpn(0, flow_tag);
  return c;
}

void fail_wq(Wq &wq) {
  wq_set_state(wq, WqState::error);
  wq.async.report(wq.user_handle, EventType::wq_fatal);
}

void write_wq(Wq &wq, Cqe &cqe, CqeOpcode opcode) {
  cqe.uidx(wq.uidx);
  if (!cq_write(*wq.cq, cqe, opcode, false) && wq.state == WqState::ready) fail_wq(wq);
}

void write_wq_error(Wq &wq, u16 counter, Syndrome s) {
  Cqe cqe;
  cqe.opcode_qpn(0, wq.wqn);
  cqe.wqe_counter(counter);
  count_error(queue_counters(wq), s, true);
  cqe.error(s, vendor_syndrome(s, true));
  write_wq(wq, cqe, CqeOpcode::resp_err);
}

// Scatter list of the current WQE, as far as `bytes` reach.
ReceiveWqe current_wqe(const Wq &wq, u64 bytes) {
  ReceiveWqe out;
  out.counter = wq.consumed;
  const u8 *segments = wq.buffer + u64{wq.consumed & (wq.entries - 1)} * wq.stride;
  // A next segment in front of striding WQEs, a signature in front of others.
  const u32 skip = (wq.strides.on() ? 1 : 0) + (wq.signature ? 1 : 0);
  resolve_scatter(segments + skip * wqe_ds, wq.stride / wqe_ds - skip, bytes, {wq.pdn, wq.wqn},
                  out);
  return out;
}

// Writes the image. A frame that is too long costs its WQE and no more; memory
// that may not be written stops the queue.
Syndrome fill(const ReceiveWqe &wqe, const Image &image) {
  if (wqe.status != Syndrome::ok) return wqe.status;
  if (image.bytes > wqe.capacity) return Syndrome::local_length;
  return image.write(wqe.spans, 0) ? Syndrome::ok : Syndrome::local_protection;
}

void deliver_cyclic(Wq &wq, Cqe &cqe, const Image &image) {
  const ReceiveWqe wqe = current_wqe(wq, image.bytes);
  wq.consumed = static_cast<u16>(wq.consumed + 1);
  const Syndrome s = fill(wqe, image);
  if (s != Syndrome::ok) {
    write_wq_error(wq, wqe.counter, s);
    if (s != Syndrome::local_length && wq.state == WqState::ready) fail_wq(wq);
    return;
  }
  cqe.byte_count(image.bytes);
  cqe.wqe_counter(wqe.counter);
  write_wq(wq, cqe, CqeOpcode::resp_send);
}

void next_striding_wqe(Wq &wq) {
  wq.consumed = static_cast<u16>(wq.consumed + 1);
  wq.strides.used = 0;
}

void deliver_striding(Wq &wq, Cqe &cqe, const Image &image) {
  const u32 shift = wq.two_byte_shift ? 2 : 0;
  const u32 need = wq.strides.needed(image.bytes + shift);
  if (need > wq.strides.count()) {
    SOFTHCA_LOG(debug, "WQ %#x: a frame of %u bytes is longer than a WQE", wq.wqn, image.bytes);
    return;
  }
  if (const u32 left = wq.strides.left(); need > left) {
    // What is left of the WQE stays unused; its owner has to know.
    if (wq.available() < 2) return;
    Cqe rest;
    rest.byte_count(filler_bit | left << 16);
    rest.wqe_id(wq.consumed);
    rest.wqe_counter(static_cast<u16>(wq.strides.used));
    write_wq(wq, rest, CqeOpcode::resp_send);
    if (wq.state != WqState::ready) return;
    next_striding_wqe(wq);
  }
  const u64 offset = wq.strides.offset() + shift;
  const ReceiveWqe wqe = current_wqe(wq, offset + image.bytes);
  Syndrome s = wqe.status;
  if (s == Syndrome::ok && offset + image.bytes > wqe.capacity) s = Syndrome::local_length;
  if (s == Syndrome::ok && !image.write(wqe.spans, offset)) s = Syndrome::local_protection;
  if (s != Syndrome::ok) {
    // WQEs without the room that the queue promises are malformed.
    next_striding_wqe(wq);
    write_wq_error(wq, wqe.counter, s);
    if (wq.state == WqState::ready) fail_wq(wq);
    return;
  }
  cqe.byte_count(need << 16 | (shift + image.bytes));
  cqe.wqe_id(wqe.counter);
  cqe.wqe_counter(static_cast<u16>(wq.strides.used));
  wq.strides.used += need;
  if (wq.strides.left() == 0) next_striding_wqe(wq);
  write_wq(wq, cqe, CqeOpcode::resp_send);
}

void deliver_to_wq(Wq &wq, const EthFrame &f, const ReceiveOffloads &o, const RssResult &rss,
                   u32 tag) {
  if (wq.state != WqState::ready) return;
  if (wq.available() == 0) return count(wq, QueueCounter::out_of_buffer);
  const Image image(f, o);
  Cqe cqe = describe(f, image, o, rss, tag);
  if (wq.strides.on()) deliver_striding(wq, cqe, image);
  else deliver_cyclic(wq, cqe, image);
}

void deliver_to_rq(Qp &qp, const EthFrame &f, u32 tag) {
  // The receive queue is ready from INIT on, and does not care what happens
  // to the send queue.
  if (qp.state == QpState::reset || qp.state == QpState::err) return;
  const ReceiveOffloads &o = qp.eth->offloads;
  const Image image(f, o);
  ReceiveWqe wqe;
  if (!take_receive_wqe(qp, nullptr, image.bytes, wqe))
    return count(qp, QueueCounter::out_of_buffer);
  const Syndrome s = fill(wqe, image);
  if (s != Syndrome::ok) {
    complete_receive_error(qp, nullptr, wqe, s);
    if (s != Syndrome::local_length) qp_fail(qp, EventType::qp_fatal);
    return;
  }
  Cqe cqe = describe(f, image, o, {}, tag);
  cqe.uidx(qp.uidx);
  cqe.byte_count(image.bytes);
  cqe.wqe_counter(wqe.counter);
  if (!cq_write(*qp.recv_cq, cqe, CqeOpcode::resp_send, false)) qp_fail(qp, EventType::qp_fatal);
}

Wq &choose_wq(const Rss &rss, const RssResult &result) {
  return *rss.table->wqs[result.hash & (rss.table->wqs.size() - 1)];
}

bool has_room(const Wq &wq, const EthFrame &f) {
  const u16 available = wq.available();
  if (!wq.strides.on() || available != 1) return available != 0;
  const u32 bytes =
      f.bytes + (wq.offloads.scatter_fcs ? fcs_bytes : 0) + (wq.two_byte_shift ? 2 : 0);
  return wq.strides.needed(bytes) <= wq.strides.left();
}

bool worth_waiting(Starvation &s, bool room, u64 now_ns) {
  if (room) {
    s = {};
    return false;
  }
  if (s.given_up) return false;
  if (s.since_ns == 0) s.since_ns = now_ns;
  // Not by difference: another thread's step may have begun with a later time.
  s.given_up = now_ns >= s.since_ns + pause_ns;
  return !s.given_up;
}

void flush(Wq &wq) {
  // At most one queue's length: a doorbell further ahead cannot be true.
  for (u32 left = std::min<u32>(wq.available(), wq.entries); left != 0; --left) {
    const u16 counter = wq.consumed;
    next_striding_wqe(wq);
    write_wq_error(wq, counter, Syndrome::flush);
  }
}

}  // namespace

bool frame_must_wait(Qp &qp, const EthFrame &f, u64 now_ns) {
  if (qp.eth->rss) {
    Wq &wq = choose_wq(*qp.eth->rss, rss_hash(*qp.eth->rss, f));
    return wq.state == WqState::ready && worth_waiting(wq.starvation, has_room(wq, f), now_ns);
  }
  if (qp.state == QpState::reset || qp.state == QpState::err || qp.rq_wqes == 0) return false;
  const bool room = static_cast<u16>(read_doorbell(&qp.dbrec[0])) != qp.rq_consumed;
  return worth_waiting(qp.eth->starvation, room, now_ns);
}

void deliver_frame(Qp &qp, const EthFrame &f, u32 flow_tag) {
  if (!qp.eth->rss) return deliver_to_rq(qp, f, flow_tag);
  const Rss &rss = *qp.eth->rss;
  const RssResult result = rss_hash(rss, f);
  Wq &wq = choose_wq(rss, result);
  ReceiveOffloads o = wq.offloads;
  o.tunnel = qp.eth->offloads.tunnel;
  deliver_to_wq(wq, f, o, result, flow_tag);
}

void wq_set_state(Wq &wq, WqState state) {
  const WqState before = wq.state;
  wq.state = state;
  if (state == WqState::reset) {
    wq.consumed = 0;
    wq.strides.used = 0;
  }
  if (before == WqState::error && state != WqState::error) std::erase(process().failed_wqs, &wq);
  if (before != WqState::error && state == WqState::error) {
    process().failed_wqs.push_back(&wq);
    flush(wq);
  }
}

void wq_forget(Wq &wq) { std::erase(process().failed_wqs, &wq); }

bool flush_failed_wqs() {
  bool any = false;
  for (Wq *wq : process().failed_wqs) {
    any |= wq->available() != 0;
    flush(*wq);
  }
  return any;
}

}  // namespace softhca
