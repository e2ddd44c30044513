// The requester: transmits fetched WQEs, handles acknowledges, responses,
// time-outs and RNR, and retires WQEs in posting order.
#include "model/requester.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "config/identity.h"
#include "model/device.h"
#include "model/path_migration.h"
#include "model/responder.h"
#include "model/tag_matching.h"
#include "model/transmit.h"
#include "model/udp_wire.h"

namespace softhca {

namespace {

// ConnectX enforces a larger minimum than the 4.096 us of the specification.
constexpr u64 minimum_timeout_ns = 16'000'000;
// A live peer that has not yet looked at its ring is slow, not lost; but not
// for ever.
constexpr u64 max_wait_ns = 30'000'000'000;
// With UDP every time-out of a row is twice as long as the one before, up to this.
constexpr u64 longest_backoff_ns = 4'000'000'000;

// RNR timer codes in microseconds (InfiniBand specification, table of the
// RNR NAK timer field).
constexpr u32 rnr_timer_us[32] = {655360, 10,    20,    30,     40,     60,     80,     120,
                                  160,    240,   320,   480,    640,    960,    1280,   1920,
                                  2560,   3840,  5120,  7680,   10240,  15360,  20480,  30720,
                                  40960,  61440, 81920, 122880, 163840, 245760, 327680, 491520};

// WQE objects are recycled: their vectors keep their capacity.
std::vector<std::unique_ptr<SendWqe>> &wqe_pool() {
  static auto &pool = *new std::vector<std::unique_ptr<SendWqe>>;
  return pool;
}

std::unique_ptr<SendWqe> new_wqe() {
  auto &pool = wqe_pool();
  if (pool.empty()) return std::make_unique<SendWqe>();
  auto w = std::move(pool.back());
  pool.pop_back();
  return w;
}

void recycle(std::unique_ptr<SendWqe> w) {
  if (wqe_pool().size() < 1024) wqe_pool().push_back(std::move(w));
}

bool reliable(const Qp &qp) {
  return qp.type != QpType::uc && qp.type != QpType::ud && qp.type != QpType::raw_packet;
}

void complete(Qp &qp, SendWqe &w) {
  if (w.own != OwnWork::no) return complete_rendezvous(qp, w);
  if (qp.send_cq == nullptr) return;
  Cqe cqe;
  cqe.uidx(qp.uidx);
  cqe.opcode_qpn(static_cast<u8>(w.opcode), qp.qpn);
  cqe.wqe_counter(w.counter);
  if (w.status != Syndrome::ok) {
    count_error(queue_counters(qp), w.status, false);
    cqe.error(w.status, w.vendor);
    if (!cq_write(*qp.send_cq, cqe, CqeOpcode::req_err, true) && qp.state != QpState::err)
      qp_fail(qp, EventType::qp_fatal);
    return;
  }
  if (!w.signaled) return;
  u8 data[64];
  u32 inline_bytes = 0;
  if (w.has_response()) {
    cqe.byte_count(w.length);
    const u32 room = qp.send_cq->cqe_size == 128 ? 64 : 32;
    if (qp.scatter_to_cqe_requester && w.length <= room && read_spans(w.spans, 0, data, w.length))
      inline_bytes = w.length;
  }
  // A completion for which the CQ has no room stops the QP.
  if (!cq_write(*qp.send_cq, cqe, CqeOpcode::req, false, data, inline_bytes) &&
      qp.state != QpState::err)
    qp_fail(qp, EventType::qp_fatal);
}

// Retires finished WQEs from the front, in posting order.
bool retire(Qp &qp) {
  SendEngine &send = *qp.send;
  bool any = false;
  while (!send.inflight.empty() && send.inflight.front()->done) {
    auto w = std::move(send.inflight.front());
    send.inflight.pop_front();
    if (send.cursor != 0) --send.cursor;
    any = true;
    const bool failed = w->status != Syndrome::ok && !w->flushed, own = w->own != OwnWork::no;
    for (const auto &part : w->signed_parts)
      report_signature_error(process().mkeys, *part, qp.send_cq);
    complete(qp, *w);
    // No room for the completion, for one.
    const bool ended = qp.state == QpState::err;
    const bool goes_on = !ended && (!failed || stop_stream(qp, *w));
    recycle(std::move(w));
    if (ended) return true;
    if (!goes_on) {
      // Datagram services stop only their send queue.
      if (qp.type == QpType::ud || qp.type == QpType::raw_packet) qp_set_state(qp, QpState::sqe);
      else if (own)  // no completion says so
        qp_fail(qp, EventType::qp_fatal);
      else qp_fail(qp);
      return true;
    }
  }
  if (any) {
    const u64 now = device_clock_ns();
    send.timer_ns = now;
    send.stalled_since_ns = now;
  }
  if (send.draining && send.inflight.empty()) {
    qp_set_state(qp, QpState::sqd);
    qp_event(qp, EventType::sq_drained);
  }
  return any;
}

void fail_wqe(Qp &qp, SendWqe &w, Syndrome s) {
  if (w.has_response() && w.requested && !w.done) --qp.send->responses_due;
  w.done = true;
  w.status = s;
  w.vendor = vendor_syndrome(s, false);
  w.lost = true;
  qp.send->blocked = true;
}

// The WQE follows what is in flight, with PSNs of its own.
void admit(Qp &qp, std::unique_ptr<SendWqe> w, u64 now_ns) {
  SendEngine &send = *qp.send;
  if (w->status != Syndrome::ok) {
    w->done = true;
    send.blocked = !w->flushed;
  } else if (w->local) {
    w->done = w->postponed.empty();
  } else {
    w->npsn = w->is_atomic() || w->length == 0
                  ? 1
                  : (w->length + path_mtu_bytes(qp) - 1) / path_mtu_bytes(qp);
  }
  w->first_psn = send.next_psn;
  send.next_psn = psn_add(send.next_psn, w->npsn);
  if (send.inflight.empty()) {
    send.timer_ns = now_ns;
    send.stalled_since_ns = now_ns;
  }
  send.inflight.push_back(std::move(w));
}

// Half of all PSNs can be told apart, and the longest message takes a quarter.
bool may_fetch(const SendEngine &send) {
  constexpr u32 quarter = 1 << 22;
  if (send.blocked || send.inflight.size() >= max_inflight) return false;
  return send.inflight.empty() ||
         ((send.next_psn - send.inflight.front()->first_psn) & 0xffffff) < quarter;
}

bool fetch_own(Qp &qp, u64 now_ns) {
  SendEngine &send = *qp.send;
  bool any = false;
  while (!send.own.empty() && may_fetch(send)) {
    auto w = std::move(send.own.front());
    send.own.pop_front();
    admit(qp, std::move(w), now_ns);
    any = true;
  }
  return any;
}

bool fetch(Qp &qp, u64 now_ns) {
  SendEngine &send = *qp.send;
  bool any = fetch_own(qp, now_ns);
  if (qp.sq_wqebbs == 0) return any;
  const u16 producer = send_producer(qp);
  while (!send.draining && producer != qp.sq_consumed && may_fetch(send)) {
    auto w = new_wqe();
    const u32 blocks = fetch_wqe(qp, *w);
    if (blocks == 0) {
      recycle(std::move(w));
      break;
    }
    // A doorbell never stops in the middle of a WQE; one that does, or a WQE
    // that runs past it, is malformed.
    if (static_cast<u16>(producer - qp.sq_consumed) < blocks) {
      w->flushed = false;
      w->status = Syndrome::local_qp_op;
      w->vendor = vendor_syndrome(w->status, false);
      qp.sq_consumed = producer;
    } else {
      qp.sq_consumed = static_cast<u16>(qp.sq_consumed + blocks);
    }
    any = true;
    if (qp.type == QpType::ud && w->status == Syndrome::ok && !w->local &&
        w->length > path_mtu_bytes(qp)) {
      w->status = Syndrome::local_length;
      w->vendor = vendor_syndrome(w->status, false);
    }
    SendWqe *const before = send.inflight.empty() ? nullptr : send.inflight.back().get();
    admit(qp, std::move(w), now_ns);
    if (before != nullptr) change_key_now(qp, *before);
  }
  if (!send.inflight.empty()) change_key_now(qp, *send.inflight.back());
  return any;
}

PacketHeader make_header(const Qp &qp, const SendWqe &w, PacketKind kind) {
  PacketHeader h{};
  h.kind = kind;
  h.service = service_of(qp);
  h.opcode = static_cast<u8>(w.opcode);
  const u8 port = std::max<u8>(qp.attr.port, 1);
  const Device &device = *qp.device;
  h.port = port;
  h.src_lid = device.ethernet(port) ? 0 : device.port(port).lid;
  h.dst_lid = w.dest.dlid;
  h.sl = w.dest.sl;
  h.traffic_class = w.dest.traffic_class;
  h.hop_limit = w.dest.hop_limit;
  h.flow_label = w.dest.flow_label;
  h.src_qpn = qp.general_services ? general_services_qpn : qp.qpn;
  h.dst_qpn = w.dest.qpn;
  h.migration_asked = qp.attr.path_state != PathState::migrated;
  h.message_bytes = w.length;
  h.imm = w.imm;
  h.key = w.dest.key;
  if (w.dest.grh) {
    h.flags |= packet_grh;
    const auto &gids = device.gids[port - 1u];
    if (w.dest.sgid_index < gids.size())
      std::memcpy(h.sgid, gids[w.dest.sgid_index].gid.data(), 16);
    std::memcpy(h.dgid, w.dest.dgid, 16);
  }
  return h;
}

// Whether the scheduling element of the QP permits the next packets. What waits for its
// turn is not late.
bool scheduled(Qp &qp, u64 now_ns) {
  if (qp.request_schedule == nullptr) return true;
  SendEngine &send = *qp.send;
  send.schedule_ns = qp.request_schedule->due(now_ns);
  if (send.schedule_ns <= now_ns) return true;
  send.timer_ns = now_ns;
  send.stalled_since_ns = now_ns;
  return false;
}

void account(Qp &qp, u32 bytes, u64 now_ns) {
  if (qp.request_schedule != nullptr) qp.request_schedule->account(bytes, now_ns);
}

// A request to the subnet administrator, which every port has at its side: the answer is there
// at once.
bool answered_here(Qp &qp, const SendWqe &w, const PacketHeader &h) {
  u8 request[mad_bytes], answer[mad_bytes];
  if (!qp.general_services || h.dst_lid != subnet_manager_lid ||
      h.dst_qpn != general_services_qpn || h.payload != mad_bytes || qp.async.listener == nullptr ||
      !read_spans(w.spans, 0, request, mad_bytes) ||
      !qp.async.listener->administrate(request, answer))
    return false;
  PacketHeader back = h;
  back.src_lid = h.dst_lid;
  back.dst_lid = h.src_lid;
  std::swap(back.sgid, back.dgid);
  count_received(*qp.device, back.port, back);
  receive_datagram(qp, back, answer);
  return true;
}

// Datagrams complete once they are on the wire.
bool transmit_datagram(Qp &qp, SendWqe &w, u64 now_ns) {
  PacketHeader h = make_header(qp, w, PacketKind::datagram);
  h.flags |= packet_first | packet_last;
  if (w.solicited) h.flags |= packet_solicited;
  if (w.opcode == WqeOpcode::send_imm) h.flags |= packet_imm;
  h.payload = w.length;
  h.psn = w.first_psn;

  if (!w.fanned_out) {
    w.fanned_out = true;
    if (answered_here(qp, w, h)) {
      w.slots.clear();
    } else if (w.dest.qpn == multicast_qpn || w.dest.qpn == general_services_qpn) {
      // Their numbers name no slot.
      u16 slots[max_slots];
      const u32 n = process().fabric->multicast_slots(slots, max_slots);
      w.slots.assign(slots, slots + n);
    } else {
      w.slots.assign(1, slot_of_qpn(h.dst_qpn));
    }
  }
  while (!w.slots.empty()) {
    if (!scheduled(qp, now_ns)) return false;
    const Sent sent =
        qp.device->up(h.port) ? transmit(w.slots.back(), h, &w.spans, 0, nullptr) : Sent::lost;
    if (sent == Sent::fault) {
      fail_wqe(qp, w, Syndrome::local_protection);
      return true;
    }
    FullRingWait &full_ring_wait = process().full_ring_wait;
    if (sent != Sent::full) full_ring_wait.has_room(w.slots.back());
    else if (full_ring_wait.goes_on(w.slots.back(), now_ns)) return false;
    account(qp, w.length, now_ns);
    w.slots.pop_back();
  }
  // To many processes it is one packet.
  if (qp.device->up(h.port)) count_sent(*qp.device, h);
  w.done = true;
  return true;
}

// A DCI talks to one target at a time: the connection to another one opens
// when everything sent to the last one is answered.
bool switch_target(Qp &qp, SendWqe &w) {
  SendEngine &send = *qp.send;
  if (send.connected && send.target.same_target(w.dest)) return true;
  if (send.inflight.front().get() != &w) return false;
  if (send.connected) disconnect_target(qp);
  send.connected = true;
  ++send.connection;
  send.connection_psn = w.first_psn;
  send.target = w.dest;
  return true;
}

// Whether the next packet has to wait until more is acknowledged.
bool window_full(const Qp &qp, u32 psn) {
  const i32 packets = psn_diff(psn, qp.send->acked_psn) - 1;
  return packets >= static_cast<i32>(UdpPacing::packets(path_mtu_bytes(qp)));
}

// Transmits what is left of one WQE. False when the wire is full.
bool transmit_wqe(Qp &qp, SendWqe &w, u64 now_ns, bool &moved) {
  SendEngine &send = *qp.send;
  const u32 mtu = path_mtu_bytes(qp);
  const u16 slot = slot_of_qpn(w.dest.qpn);
  const bool by_udp = w.dest.grh && leaves_by_udp(w.dest.dgid);
  if (w.has_response() && w.requested) return w.asked == w.length;  // the next piece: later
  for (;;) {
    PacketHeader h = make_header(qp, w, PacketKind::request);
    h.rkey = w.rkey;
    h.xrc_srqn = w.xrc_srqn;
    h.connection = send.connection;
    const SpanList *spans = nullptr;
    const u8 *bytes = nullptr;
    u32 next_sent = 0, asked = 0;
    if (w.has_response()) {
      // A repeated READ asks only for what is missing. The responses counted
      // in `received` are whole packets, except at the end.
      const u32 skip = w.received;
      h.flags |= packet_first | packet_last;
      h.offset = skip;
      h.psn = psn_add(w.first_psn, skip / mtu);
      h.npsn = w.npsn - skip / mtu;
      h.remote_address = w.remote_address + skip;
      // A piece that is repeated ends where it did: the responder may have
      // counted it.
      asked = by_udp && !w.is_atomic() ? std::min(w.length, skip + UdpPacing::packets(mtu) * mtu)
                                       : w.length;
      if (w.asked > skip) asked = w.asked;
      h.message_bytes = asked - skip;
      h.atomic_size = w.atomic_size;
      if (w.is_atomic()) {
        h.payload = static_cast<u32>(w.inline_data.size());
        bytes = w.inline_data.data();
      }
    } else {
      h.offset = w.sent;
      h.payload = std::min(w.length - w.sent, burst_bytes);
      h.psn = psn_add(w.first_psn, w.sent / mtu);
      h.npsn = h.payload == 0 ? 1 : (h.payload + mtu - 1) / mtu;
      h.remote_address = w.remote_address + w.sent;
      next_sent = w.sent + h.payload;
      if (w.sent == 0) h.flags |= packet_first;
      if (next_sent == w.length) {
        h.flags |= packet_last;
        if (w.solicited) h.flags |= packet_solicited;
        if (w.opcode == WqeOpcode::send_imm || w.opcode == WqeOpcode::rdma_write_imm)
          h.flags |= packet_imm;
        if (w.opcode == WqeOpcode::send_inv) {
          h.flags |= packet_inv;
          h.imm = swap32(w.imm);
        }
      }
      spans = &w.spans;
      if (by_udp && reliable(qp) && next_sent != w.length) h.flags |= packet_ack_request;
    }
    if (by_udp && reliable(qp) && window_full(qp, h.psn)) return false;
    if (qp.type == QpType::dci && h.psn == send.connection_psn) h.flags |= packet_connect;

    if (!scheduled(qp, now_ns)) return false;
    u64 position = 0;
    const Sent sent = transmit_from(*qp.device, slot, h, spans, h.offset, bytes, &position);
    if (sent == Sent::full) return false;
    if (sent == Sent::fault) {
      fail_wqe(qp, w, Syndrome::local_protection);
      moved = true;
      return true;
    }
    moved = true;
    account(qp, h.payload, now_ns);
    if (send.timer_ns == 0) send.timer_ns = now_ns;
    if (sent == Sent::yes) {
      send.wire_position = position;
      send.wire_slot = slot;
    }
    if (w.has_response()) {
      if (!w.requested) ++send.responses_due;
      w.requested = true;
      w.asked = asked;
      return w.asked == w.length;
    }
    w.sent = next_sent;
    if (w.sent == w.length) break;
  }
  w.requested = true;
  if (!reliable(qp)) w.done = true;
  return true;
}

bool transmit_all(Qp &qp, u64 now_ns) {
  SendEngine &send = *qp.send;
  if (send.rnr_until_ns != 0) {
    if (now_ns < send.rnr_until_ns) return false;
    send.rnr_until_ns = 0;
    send.timer_ns = now_ns;
  }
  bool moved = false;
  while (send.cursor < send.inflight.size()) {
    SendWqe &w = *send.inflight[send.cursor];
    if (w.done) {
      ++send.cursor;
      continue;
    }
    if (qp.type == QpType::ud) {
      if (!transmit_datagram(qp, w, now_ns)) break;
      moved = true;
    } else if (qp.type == QpType::raw_packet) {
      const u32 before = w.eth.segment;
      const bool all = transmit_frames(qp, w, now_ns);
      moved |= all || w.eth.segment != before;
      if (!all) break;
    } else {
      if (qp.type == QpType::dci && !switch_target(qp, w)) break;
      // READs and atomics share the responder's resources: more than
      // max_rd_atomic wait, they never fail.
      if (w.has_response() && !w.requested &&
          send.responses_due >= std::max<u32>(qp.attr.max_rd_atomic, 1))
        break;
      if (!transmit_wqe(qp, w, now_ns, moved)) break;
    }
    ++send.cursor;
  }
  return moved;
}

// Go-back-N: transmit again from `psn` on.
void rewind(Qp &qp, u32 psn) {
  SendEngine &send = *qp.send;
  const u32 mtu = path_mtu_bytes(qp);
  for (size_t i = 0; i < send.inflight.size(); ++i) {
    SendWqe &w = *send.inflight[i];
    if (w.done || psn_diff(psn, w.last_psn()) > 0) continue;
    if (!w.has_response() && !w.requested && w.sent == 0) break;  // never transmitted
    send.cursor = std::min(send.cursor, i);
    if (w.has_response()) {
      if (w.requested) --send.responses_due;
    } else {
      const i32 packets = psn_diff(psn, w.first_psn);
      const u32 keep = packets > 0 ? static_cast<u32>(packets) * mtu : 0;
      w.sent = std::min(keep, w.sent);
      // The burst grid of the first transmission is kept by starting at the
      // packet asked for; the responder accepts any burst that starts at its
      // expected PSN.
    }
    w.requested = false;
  }
}

void progress(Qp &qp, u64 now_ns) {
  SendEngine &send = *qp.send;
  send.timer_ns = now_ns;
  send.stalled_since_ns = now_ns;
  send.retries_left = qp.attr.retry_count;
  send.rnr_left = qp.attr.rnr_retry;
}

void note_acknowledged(SendEngine &send, u32 psn) {
  if (psn_diff(psn, send.acked_psn) > 0 && psn_diff(psn, send.next_psn) < 0) send.acked_psn = psn;
}

// Everything up to and including `psn` has arrived. READs and atomics finish
// only with their response; an acknowledge behind one means it was lost.
void acknowledge(Qp &qp, u32 psn) {
  SendEngine &send = *qp.send;
  note_acknowledged(send, psn);
  for (auto &p : send.inflight) {
    SendWqe &w = *p;
    if (w.done) continue;
    if (!w.requested && w.sent == 0) break;
    if (w.has_response()) {
      if (w.requested && psn_diff(psn, w.last_psn()) >= 0) {
        count(qp, QueueCounter::implied_nak_seq_err);
        rewind(qp, psn_add(w.first_psn, w.received / path_mtu_bytes(qp)));
        break;
      }
      if (psn_diff(psn, w.first_psn) < 0) break;
      continue;
    }
    if (psn_diff(psn, w.last_psn()) < 0) break;
    w.done = true;
  }
}

SendWqe *find_psn(SendEngine &send, u32 psn) {
  for (auto &p : send.inflight)
    if (!p->done && psn_diff(psn, p->first_psn) >= 0 && psn_diff(psn, p->last_psn()) <= 0)
      return p.get();
  return nullptr;
}

void negative(Qp &qp, const PacketHeader &h, u64 now_ns) {
  SendEngine &send = *qp.send;
  SendWqe *w = find_psn(send, h.psn);
  if (w == nullptr) return;  // an answer to something already settled
  acknowledge(qp, psn_add(h.psn, 0xffffff));
  if (w->done) return;
  switch (h.nak) {
    case Nak::sequence:
      count(qp, QueueCounter::packet_seq_err);
      // A try, unless something has arrived since the one before.
      if (std::exchange(send.nak_psn, send.acked_psn) != send.acked_psn) {
        progress(qp, now_ns);
      } else if (send.retries_left == 0) {
        fail_wqe(qp, *w, Syndrome::retry_exceeded);
        break;
      } else {
        --send.retries_left;
      }
      rewind(qp, h.psn);
      break;
    case Nak::rnr:
      count(qp, QueueCounter::rnr_nak_retry_err);
      if (qp.attr.rnr_retry != 7) {
        if (send.rnr_left == 0) {
          fail_wqe(qp, *w, Syndrome::rnr_retry_exceeded);
          break;
        }
        --send.rnr_left;
      }
      send.rnr_until_ns = now_ns + u64{rnr_timer_us[h.timer & 31]} * 1000;
      send.timer_ns = send.rnr_until_ns;
      send.stalled_since_ns = now_ns;
      rewind(qp, h.psn);
      break;
    case Nak::invalid_request: fail_wqe(qp, *w, Syndrome::remote_invalid_request); break;
    case Nak::remote_access: fail_wqe(qp, *w, Syndrome::remote_access); break;
    case Nak::remote_operation: fail_wqe(qp, *w, Syndrome::remote_operation); break;
    case Nak::none: break;
  }
}

void scatter_response(Qp &qp, const PacketHeader &h, const u8 *payload, u64 now_ns) {
  SendEngine &send = *qp.send;
  SendWqe *w = find_psn(send, h.psn);
  if (w == nullptr || !w->has_response() || !w->requested) return;
  // An answer to a later request acknowledges everything before it.
  acknowledge(qp, psn_add(w->first_psn, 0xffffff));
  if (w->done || !w->requested) return;
  const u32 offset = h.offset;
  if (w->is_atomic() != (h.kind == PacketKind::atomic_response) ||
      u64{offset} + h.payload > w->length) {
    fail_wqe(qp, *w, Syndrome::bad_response);
    w->lost = false;
    return;
  }
  if (offset != w->received) {
    if (offset > w->received) {
      count(qp, QueueCounter::implied_nak_seq_err);
      rewind(qp, psn_add(w->first_psn, w->received / path_mtu_bytes(qp)));
    }
    return;  // a gap, or a duplicate
  }
  if (h.payload != 0 && !write_spans(w->spans, offset, payload, h.payload)) {
    fail_wqe(qp, *w, Syndrome::local_protection);
    w->lost = false;
    return;
  }
  w->received += h.payload;
  note_acknowledged(send, h.psn);
  progress(qp, now_ns);
  if (w->received < w->length) {
    if (w->received == w->asked) {  // the next piece
      w->requested = false;
      --send.responses_due;
    }
    return;
  }
  for (const auto &part : w->signed_parts)
    if (!scatter_signed(*part, w->length)) return fail_wqe(qp, *w, Syndrome::local_protection);
  w->done = true;
  --send.responses_due;
}

bool anything_outstanding(const SendEngine &send) {
  for (const auto &w : send.inflight)
    if (!w->done) return w->requested || w->sent != 0;
  return false;
}

bool check_timer(Qp &qp, u64 now_ns) {
  SendEngine &send = *qp.send;
  if (qp.attr.timeout == 0 || send.rnr_until_ns != 0 || !anything_outstanding(send)) return false;
  u64 limit = std::max(u64{4096} << (qp.attr.timeout & 31), minimum_timeout_ns);
  // Nothing says whether a peer behind sockets is dead or gets no processor.
  if (qp.attr.av.is_global && leaves_by_udp(qp.attr.av.dgid))
    limit = std::max(limit, std::min(limit << (qp.attr.retry_count - send.retries_left) % 8,
                                     longest_backoff_ns));
  if (now_ns < send.timer_ns + limit) return false;

  Fabric &fabric = *process().fabric;
  if (send.wire_slot != 0 && now_ns - send.stalled_since_ns < max_wait_ns &&
      !fabric.consumed(send.wire_slot, send.wire_position) && fabric.alive(send.wire_slot)) {
    send.timer_ns = now_ns;  // still in flight towards a busy process
    return false;
  }
  count(qp, QueueCounter::local_ack_timeout_err);
  const auto first = std::find_if(send.inflight.begin(), send.inflight.end(),
                                  [](const auto &w) { return !w->done; });
  SendWqe &w = **first;
  if (send.retries_left == 0) {
    if (migrate(qp)) return true;
    fail_wqe(qp, w, Syndrome::retry_exceeded);
    return true;
  }
  --send.retries_left;
  send.timer_ns = now_ns;
  SOFTHCA_LOG(debug, "QP %#x: no answer for PSN %#x, %u retries left", qp.qpn, w.first_psn,
              send.retries_left);
  if (w.has_response()) {
    rewind(qp, psn_add(w.first_psn, w.received / path_mtu_bytes(qp)));
  } else {
    // After a partial acknowledge, only the rest of the message is sent again.
    const u32 next = psn_add(send.acked_psn, 1);
    const bool part = w.dest.grh && leaves_by_udp(w.dest.dgid) && psn_diff(next, w.first_psn) > 0 &&
                      psn_diff(next, w.last_psn()) <= 0;
    rewind(qp, part ? next : w.first_psn);
  }
  return true;
}

}  // namespace

u16 send_producer(const Qp &qp) {
  if (qp.slave_send) return qp.send_released;
  return qp.counts_when_rung ? qp.rung : static_cast<u16>(read_doorbell(&qp.dbrec[1]));
}

void send_by_new_path(Qp &qp) {
  if (!qp.send) return;
  SendEngine &send = *qp.send;
  for (auto &w : send.inflight) connected_destination(qp, w->dest);
  for (auto &w : send.own) connected_destination(qp, w->dest);
  const auto first = std::find_if(send.inflight.begin(), send.inflight.end(),
                                  [](const auto &w) { return !w->done; });
  if (first == send.inflight.end()) return;
  progress(qp, device_clock_ns());
  rewind(qp, psn_add((*first)->first_psn, (*first)->received / path_mtu_bytes(qp)));
  qp_wake(qp);
}

bool place_response(const Qp &qp, PacketHeader &h) {
  if (h.kind != PacketKind::read_response) return true;
  const SendWqe *w = find_psn(*qp.send, h.psn);
  if (w == nullptr || w->opcode != WqeOpcode::rdma_read) return false;
  const u32 mtu = path_mtu_bytes(qp);
  h.offset = static_cast<u32>(psn_diff(h.psn, w->first_psn)) * mtu;
  return h.payload == std::min(mtu, w->length - std::min(h.offset, w->length));
}

bool qp_run_send(Qp &qp, u64 now_ns) {
  if (qp.sq_wqebbs == 0 && !qp.send) return false;
  if (qp.state == QpState::err || qp.state == QpState::sqe) {
    if (qp.sq_wqebbs == 0 || send_producer(qp) == qp.sq_consumed) return false;
    flush_send(qp);
    return true;
  }
  if (qp.state != QpState::rts || !qp.send) return false;
  bool any = fetch(qp, now_ns);
  if (qp.send->inflight.empty()) return any;
  any |= transmit_all(qp, now_ns);
  any |= check_timer(qp, now_ns);
  any |= retire(qp);
  return any;
}

void qp_receive_response(Qp &qp, const PacketHeader &h, const u8 *payload) {
  if (!qp.send || qp.state != QpState::rts) return;
  SendEngine &send = *qp.send;
  if (qp.type == QpType::dci) {
    if (!send.connected || h.connection != send.connection || h.src_qpn != send.target.qpn) return;
  } else if (h.src_qpn != qp.attr.dest_qpn) {
    return;
  }
  if (!qp.device->up(std::max<u8>(qp.attr.port, 1)) ||
      (qp.attr.path_state != PathState::migrated && !takes_path(qp, h)))
    return;
  const u64 now = device_clock_ns();
  if (h.kind == PacketKind::ack) {
    if (h.nak == Nak::none) {
      SendWqe *w = find_psn(send, h.psn);
      acknowledge(qp, h.psn);
      if (w != nullptr) progress(qp, now);
    } else {
      negative(qp, h, now);
    }
  } else {
    scatter_response(qp, h, payload, now);
  }
  retire(qp);
  qp_wake(qp);
}

void flush_send(Qp &qp) {
  auto flush_one = [&](u16 counter, WqeOpcode op) {
    SendWqe w;
    w.counter = counter;
    w.opcode = op;
    w.status = Syndrome::flush;
    w.vendor = vendor_syndrome(w.status, false);
    complete(qp, w);
  };
  if (qp.send) {
    SendEngine &send = *qp.send;
    // Taken out first: a completion may fail and lead back here.
    auto inflight = std::move(send.inflight);
    send.inflight.clear();
    for (auto &w : send.own) inflight.push_back(std::move(w));
    send.own.clear();
    send.cursor = 0;
    send.responses_due = 0;
    send.blocked = false;
    send.rnr_until_ns = 0;
    for (auto &w : inflight) {
      // What is not retired lies behind a failure, even if it is already done.
      if (w->own != OwnWork::no) {
        w->status = Syndrome::flush;
        complete(qp, *w);
      } else {
        flush_one(w->counter, w->opcode);
      }
      recycle(std::move(w));
    }
  }
  if (qp.sq_wqebbs == 0 || qp.dbrec == nullptr) return;
  const u16 producer = send_producer(qp);
  const u32 mask = qp.sq_wqebbs - 1;
  // A doorbell further ahead than the queue is long cannot be true: at most
  // the queue's length is flushed.
  u32 left = std::min<u32>(static_cast<u16>(producer - qp.sq_consumed), qp.sq_wqebbs);
  while (left != 0) {
    const u8 *wqe = qp.sq + (qp.sq_consumed & mask) * wqe_bb;
    const u32 ds = load_be32(wqe + 4) & 0x3f;
    const u32 blocks = std::clamp<u32>((ds + 3) / 4, 1, left);
    const u16 counter = qp.sq_consumed;
    qp.sq_consumed = static_cast<u16>(qp.sq_consumed + blocks);
    left -= blocks;
    flush_one(counter, static_cast<WqeOpcode>(wqe[3]));
  }
  qp.sq_consumed = producer;
}

void disconnect_target(Qp &qp) {
  const SendEngine &send = *qp.send;
  PacketHeader h{};
  h.kind = PacketKind::dc_disconnect;
  h.service = Service::dc;
  h.src_qpn = qp.qpn;
  h.dst_qpn = send.target.qpn;
  h.connection = send.connection;
  (void)transmit(slot_of_qpn(h.dst_qpn), h, nullptr, 0, nullptr);
}

bool qp_send_busy(const Qp &qp) {
  return qp.send && !(qp.send->inflight.empty() && qp.send->own.empty());
}

u64 qp_next_due(const Qp &qp, u64 now_ns) {
  constexpr u64 look_again_ns = 5'000'000;  // a third of the shortest time-out
  constexpr u64 flush_ns = 1'000'000;       // receive WQEs are posted without a doorbell
  if (qp.state == QpState::err && qp.rq_wqes != 0) return now_ns + flush_ns;
  if (qp.state != QpState::rts || !qp.send) return ~u64{0};
  const SendEngine &send = *qp.send;
  if (send.inflight.empty() && send.own.empty()) return ~u64{0};
  if (send.rnr_until_ns != 0) return send.rnr_until_ns;
  if (send.cursor != send.inflight.size() && send.schedule_ns > now_ns) return send.schedule_ns;
  // With all of it on the wire, an answer comes or the timer expires.
  return send.own.empty() && send.cursor == send.inflight.size() ? now_ns + look_again_ns : now_ns;
}

u32 qp_live_sq_psn(const Qp &qp) { return qp.send ? qp.send->next_psn : qp.attr.sq_psn; }

}  // namespace softhca
