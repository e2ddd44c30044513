// The responder: checks and executes requests of reliable and unreliable
// connected services, and sends acknowledges and responses in order.
#include "model/responder.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "model/device.h"
#include "model/packets.h"
#include "model/paging.h"
#include "model/path_migration.h"
#include "model/requester.h"
#include "model/transmit.h"

namespace softhca {

namespace {

// One request on its way through the checks.
struct Request {
  Qp &qp;
  Responder &r;
  const PacketHeader &h;
  const u8 *payload;
  WqeOpcode opcode() const { return static_cast<WqeOpcode>(h.opcode); }
  bool first() const { return (h.flags & packet_first) != 0; }
  bool last() const { return (h.flags & packet_last) != 0; }
};

Srq *srq_of(const Qp &qp, Service service, u32 xrc_srqn) {
  if (service != Service::xrc) return qp.srq;
  const auto it = process().srqs.find(xrc_srqn);
  if (it == process().srqs.end() || it->second->xrcd != qp.xrcd) return nullptr;
  return it->second;
}

Srq *receive_srq(const Request &q) { return srq_of(q.qp, q.h.service, q.h.xrc_srqn); }

bool acknowledged_service(const Qp &qp) { return qp.type != QpType::uc; }

void list_for_push(Qp &qp) {
  if (qp.ack_listed) return;
  qp.ack_listed = true;
  process().ack_pending.push_back(&qp);
}

void queue(Request &q, Response response) {
  // Acknowledges are cumulative: a newer one replaces one still waiting.
  auto &list = q.r.responses;
  if (response.kind == Response::Kind::ack && !list.empty() &&
      list.back().kind == Response::Kind::ack) {
    if (psn_diff(response.psn, list.back().psn) > 0) list.back().psn = response.psn;
  } else {
    list.push_back(std::move(response));
  }
  if (q.qp.type == QpType::dct && !q.r.listed) {
    q.r.listed = true;
    q.qp.responder->pending.push_back(q.h.src_qpn);
  }
  list_for_push(q.qp);
}

void acknowledge(Request &q, u32 psn) {
  if (!acknowledged_service(q.qp)) return;
  Response a;
  a.psn = psn;
  queue(q, std::move(a));
}

// Sends the acknowledge before the completion (in `cq`, or none) can be seen: the program may exit
// then, and unsent packets are lost. If further requests follow, one acknowledge serves all of
// them, and compressed completions wait until the acknowledges of the step are sent.
void acknowledge_message(Request &q, const Cq *cq) {
  acknowledge(q, psn_add(q.r.expected_psn, 0xffffff));
  const bool is_held_back = cq != nullptr && cq->compression != CqeCompression::off;
  if (!is_held_back && process().fabric->is_last()) (void)qp_run_responder(q.qp);
}

// In the middle of a message.
void acknowledge_part(Request &q) {
  if ((q.h.flags & packet_ack_request) != 0) acknowledge(q, psn_add(q.r.expected_psn, 0xffffff));
}

void negative(Request &q, Nak nak, u32 psn) {
  if (!acknowledged_service(q.qp)) return;
  Response n;
  n.kind = Response::Kind::nak;
  n.nak = nak;
  n.psn = psn;
  n.timer = q.qp.attr.min_rnr_timer;
  // A driver needs longer to fetch pages than software to post receives.
  constexpr u8 timer_10_ms = 20;
  if (q.qp.receive_pages == PageWait::waits && n.timer != 0)
    n.timer = std::max(n.timer, timer_10_ms);
  q.r.nak_sent = true;
  queue(q, std::move(n));
}

// Ends the QP; for a DC target only the connection of this initiator.
void end_connection(Qp &qp, Responder &r, EventType event) {
  if (qp.type == QpType::dct) r.dead = true;
  else qp_fail(qp, event);
}

// A request that cannot be executed ends the connection.
void refuse(Request &q, Nak nak, EventType event) {
  if (nak == Nak::remote_access) count(q.qp, QueueCounter::resp_remote_access_errors);
  if (nak == Nak::invalid_request) count(q.qp, QueueCounter::resp_remote_invalid_request);
  abandon_message(q.qp, q.r);
  // An unreliable connection sends no NAK: the message is dropped.
  if (q.qp.type == QpType::uc) return;
  negative(q, nak, q.r.expected_psn);
  if (q.qp.type != QpType::dct)
    (void)qp_run_responder(q.qp);  // the NAK goes out before the state changes, if it can
  end_connection(q.qp, q.r, event);
}

// The identity against which remote keys of a request are checked. Every XRC request names an
// SRQ, and the keys are checked against its protection domain: the target QP has none.
Requester remote_requester(const Request &q) {
  const Srq *srq = q.h.service == Service::xrc ? receive_srq(q) : nullptr;
  return {srq != nullptr ? srq->pdn : q.qp.pdn, q.qp.qpn};
}

void advance(Request &q) {
  q.r.expected_psn = psn_add(q.r.expected_psn, q.h.npsn);
  if (q.last()) ++q.r.message_number;
}

// Puts a small message into the CQE when the queue was created for that.
bool fits_cqe(const Qp &qp, const Srq *srq, u32 bytes) {
  if (!qp.scatter_to_cqe_responder || bytes == 0 || (srq != nullptr && srq->tags)) return false;
  const Cq *cq = srq != nullptr && srq->cq != nullptr ? srq->cq : qp.recv_cq;
  if (cq == nullptr) return false;
  // A DC target scatters only into 128-byte completions.
  if (cq->cqe_size == 128) return bytes <= 64;
  return qp.type != QpType::dct && bytes <= 32;
}

// False: no receive WQE; the sender has to wait.
bool take_or_rnr(Request &q, Srq *srq, u64 bytes) {
  const bool taken = srq != nullptr && srq->strides.on()
                         ? take_strides(q.qp, *srq, static_cast<u32>(bytes), q.r.wqe)
                         : take_receive_wqe(q.qp, srq, bytes, q.r.wqe);
  if (taken) return true;
  if (q.qp.receive_pages != PageWait::waits) count(q.qp, QueueCounter::out_of_buffer);
  if (acknowledged_service(q.qp)) negative(q, Nak::rnr, q.r.expected_psn);
  return false;
}

// The same for what goes to WQEs of an SRQ that matches tags: a message, or its next packet.
bool take_unmatched(Request &q, Srq &srq, u32 bytes, bool first) {
  const TagOutcome tag = q.r.wqe.tag;
  const bool taken = take_or_rnr(q, &srq, bytes);
  q.r.wqe.tag = tag;
  if (taken && first && tag == TagOutcome::unexpected) ++srq.tags->hardware_phase;
  return taken;
}

// Decides where a message goes, at its first packet. False: no receive WQE.
bool choose_buffer(Request &q, Srq *srq) {
  if (srq == nullptr || !srq->tags) return take_or_rnr(q, srq, q.h.message_bytes);
  if (match_tag(q.qp, *srq, q.h, q.payload, q.r.wqe) || srq->strides.on()) return true;
  return take_unmatched(q, *srq, q.h.message_bytes, true);
}

void fail_receive(Request &q, Srq *srq, Syndrome s) {
  q.r.wqe.taken = false;
  complete_receive_error(q.qp, srq, q.r.wqe, s);
}

CqeOpcode completion_of_send(u8 flags) {
  if ((flags & packet_imm) != 0) return CqeOpcode::resp_send_imm;
  return (flags & packet_inv) != 0 ? CqeOpcode::resp_send_inv : CqeOpcode::resp_send;
}

bool invalidates_wrongly(const Request &q) {
  return q.last() && (q.h.flags & packet_inv) != 0 &&
         !invalidate(process().mkeys, q.h.imm, remote_requester(q), true);
}

// The data has arrived but the key may not be invalidated.
void refuse_invalidation(Request &q, Srq *srq) {
  fail_receive(q, srq, Syndrome::local_access);
  refuse(q, Nak::remote_access, EventType::qp_access_err);
}

// A striding queue takes a message packet by packet, each with its own completion.
void send_into_strides(Request &q, Srq &srq) {
  Responder &r = q.r;
  ReceiveWqe &wqe = r.wqe;
  const u32 mtu = mtu_of(q.h);
  u32 done = 0;
  if (q.first()) {
    r.received = 0;
    r.opcode = q.opcode();
  }
  do {
    const u32 bytes = std::min(mtu, q.h.payload - done);
    const bool first = q.first() && done == 0, last = q.last() && done + bytes == q.h.payload;
    if (!take_unmatched(q, srq, bytes, first)) return;
    Syndrome s = wqe.status;
    const u64 at = u64{wqe.stride} << srq.strides.log_bytes;
    if (s == Syndrome::ok && bytes != 0 && !write_spans(wqe.spans, at, q.payload + done, bytes))
      s = Syndrome::local_protection;
    if (s != Syndrome::ok) {
      fail_receive(q, &srq, s);
      return s == Syndrome::local_length ? refuse(q, Nak::invalid_request, EventType::qp_req_err)
                                         : refuse(q, Nak::remote_operation, EventType::qp_fatal);
    }
    if (last && invalidates_wrongly(q)) return refuse_invalidation(q, &srq);
    PacketHeader h = q.h;
    if (!last) h.flags &= static_cast<u8>(~(packet_imm | packet_inv | packet_solicited));
    wqe.taken = false;
    r.in_message = !last;
    r.received += bytes;
    r.expected_psn = psn_add(r.expected_psn, 1);
    done += bytes;
    if (last) {
      ++r.message_number;
      acknowledge_message(q, completion_queue(q.qp, &srq));
    }
    complete_receive(q.qp, &srq, wqe, completion_of_send(h.flags), h,
                     bytes | (first ? first_packet_bit : 0) | (last ? last_packet_bit : 0));
  } while (done < q.h.payload);
  if (!q.last()) acknowledge_part(q);
}

void do_send(Request &q) {
  Responder &r = q.r;
  Srq *srq = receive_srq(q);
  if (q.first() && !choose_buffer(q, srq)) return;
  if (srq != nullptr && srq->strides.on() && !r.wqe.matched()) return send_into_strides(q, *srq);
  if (q.first()) {
    r.in_message = true;
    r.received = 0;
    r.opcode = q.opcode();
  }
  ReceiveWqe &wqe = r.wqe;
  Syndrome s = wqe.status;
  Nak nak = Nak::remote_operation;
  // Headers of tag matching do not go into the buffer.
  const u32 header = q.first() ? wqe.header_bytes : 0, bytes = q.h.payload - header;
  if (u64{r.received} + bytes > wqe.capacity) {
    s = Syndrome::local_length;
    nak = Nak::invalid_request;
  }
  const bool in_cqe = q.first() && q.last() && fits_cqe(q.qp, srq, q.h.payload);
  if (s == Syndrome::ok && !in_cqe && bytes != 0 &&
      !write_spans(wqe.spans, r.received, q.payload + header, bytes))
    s = Syndrome::local_protection;
  if (s == Syndrome::ok && q.last()) s = settle_signed(q.qp, srq, wqe, u64{r.received} + bytes);
  if (s == Syndrome::ok && invalidates_wrongly(q)) return refuse_invalidation(q, srq);
  if (s != Syndrome::ok) {
    fail_receive(q, srq, s);
    if (q.qp.type == QpType::uc) return qp_fail(q.qp, EventType::qp_fatal);
    return refuse(q, nak,
                  nak == Nak::invalid_request ? EventType::qp_req_err : EventType::qp_fatal);
  }
  r.received += bytes;
  advance(q);
  if (!q.last()) return acknowledge_part(q);
  r.in_message = false;
  wqe.taken = false;
  acknowledge_message(q, completion_queue(q.qp, srq));
  const CqeOpcode op = completion_of_send(q.h.flags);
  if (wqe.tag != TagOutcome::none) complete_tagged(q.qp, *srq, wqe, op, q.h, r.received);
  else
    complete_receive(q.qp, srq, wqe, op, q.h, r.received, in_cqe ? q.payload : nullptr,
                     in_cqe ? q.h.payload : 0);
}

// A request that the queue pair does not allow at all is invalid, whatever its key.
bool allows(Request &q, u32 access) {
  if ((q.qp.attr.access & access) != 0) return true;
  refuse(q, Nak::invalid_request, EventType::qp_req_err);
  return false;
}

// The request's memory has to be paged in first: the requester has to send it again (RNR).
bool waits_for_memory(Request &q, Syndrome s, const PageFault &missing) {
  if (s != Syndrome::page_fault || !wait_for_pages(q.qp, PageSide::receive, missing)) return false;
  // A duplicate is sent again without an RNR.
  if (q.h.psn == q.r.expected_psn) negative(q, Nak::rnr, q.r.expected_psn);
  return true;
}

// The NAK for a request whose memory cannot be copied.
Nak refusal(const SpanList &spans) {
  return std::any_of(spans.begin(), spans.end(),
                     [](const Span &s) { return s.kind == Span::Kind::gone; })
             ? Nak::remote_access
             : Nak::remote_operation;
}

void do_write(Request &q) {
  Responder &r = q.r;
  const bool with_imm = q.opcode() == WqeOpcode::rdma_write_imm;
  Srq *srq = with_imm && q.last() ? receive_srq(q) : nullptr;
  if (q.first()) {
    r.target.clear();
    r.received = 0;
    r.opcode = q.opcode();
    const u32 bytes = q.h.message_bytes;
    if (!allows(q, access_remote_write)) return;
    PageFault missing;
    const Syndrome s = resolve(process().mkeys, q.h.rkey, q.h.remote_address, bytes,
                               access_remote_write, remote_requester(q), r.target, &missing);
    if (waits_for_memory(q, s, missing)) return;
    if (s != Syndrome::ok) return refuse(q, Nak::remote_access, EventType::qp_access_err);
    r.in_message = true;
  }
  // The receive WQE of the immediate data is taken before the last bytes are
  // written, so that an RNR leaves nothing half done.
  if (with_imm && q.last() && !take_or_rnr(q, srq, 0)) {
    if (q.first()) r.in_message = false;
    return;
  }
  if (u64{r.received} + q.h.payload > total_length(r.target) ||
      (q.h.payload != 0 && !write_spans(r.target, r.received, q.payload, q.h.payload)))
    return refuse(q, refusal(r.target), EventType::qp_access_err);
  r.received += q.h.payload;
  advance(q);
  if (!q.last()) return acknowledge_part(q);
  r.in_message = false;
  if (with_imm) {
    if (r.wqe.status != Syndrome::ok) {
      fail_receive(q, srq, r.wqe.status);
      return refuse(q, Nak::remote_operation, EventType::qp_fatal);
    }
    r.wqe.taken = false;
  }
  acknowledge_message(q, with_imm ? completion_queue(q.qp, srq) : nullptr);
  if (with_imm) complete_receive(q.qp, srq, r.wqe, CqeOpcode::resp_rdma_write_imm, q.h, r.received);
}

void queue_read(Request &q) {
  Response read;
  read.kind = Response::Kind::read;
  read.psn = q.h.psn;
  read.npsn = std::max<u32>(q.h.npsn, 1);
  read.length = q.h.message_bytes;
  read.base = q.h.offset;
  if (!allows(q, access_remote_read)) return;
  PageFault missing;
  const Syndrome s = resolve(process().mkeys, q.h.rkey, q.h.remote_address, read.length,
                             access_remote_read, remote_requester(q), read.spans, &missing);
  if (waits_for_memory(q, s, missing)) return;
  if (s != Syndrome::ok) return refuse(q, Nak::remote_access, EventType::qp_access_err);
  queue(q, std::move(read));
}

void do_read(Request &q) {
  const u32 before = q.r.expected_psn;
  queue_read(q);
  if (q.r.nak_sent || q.qp.state == QpState::err || q.r.dead) return;
  q.r.expected_psn = psn_add(before, q.h.npsn);
  ++q.r.message_number;
}

void queue_atomic_result(Request &q, u32 psn, const u8 *result, u8 bytes) {
  Response a;
  a.kind = Response::Kind::atomic;
  a.psn = psn;
  a.result_bytes = bytes;
  std::memcpy(a.result, result, bytes);
  queue(q, std::move(a));
}

void do_atomic(Request &q) {
  const u32 size = q.h.atomic_size;
  const bool compare_masks = q.opcode() == WqeOpcode::masked_cs;
  const u32 operands = compare_masks ? 4 * size : 2 * size;
  SpanList target;
  if (size < 4 || size > 32 || (size & (size - 1)) != 0 || q.h.payload < operands)
    return refuse(q, Nak::invalid_request, EventType::qp_req_err);
  if ((q.h.remote_address & (size - 1)) != 0)
    return refuse(q, Nak::invalid_request, EventType::qp_req_err);
  if (!allows(q, access_remote_atomic)) return;
  PageFault missing;
  const Syndrome s = resolve(process().mkeys, q.h.rkey, q.h.remote_address, size,
                             access_remote_atomic, remote_requester(q), target, &missing);
  if (waits_for_memory(q, s, missing)) return;
  if (s != Syndrome::ok) return refuse(q, Nak::remote_access, EventType::qp_access_err);
  u8 result[32];
  switch (execute_atomic(target, q.h.remote_address, q.opcode(), size, q.payload, result)) {
    case Syndrome::ok: break;
    case Syndrome::remote_invalid_request:
      return refuse(q, Nak::invalid_request, EventType::qp_req_err);
    default: return refuse(q, Nak::remote_access, EventType::qp_access_err);
  }
  // A lost response must not execute the atomic twice.
  Responder::Replay replay{q.h.psn, static_cast<u8>(size), {}};
  std::memcpy(replay.result, result, size);
  q.r.atomics.push_back(replay);
  if (q.r.atomics.size() > atomic_replays) q.r.atomics.pop_front();
  queue_atomic_result(q, q.h.psn, result, static_cast<u8>(size));
  advance(q);
}

void execute(Request &q) {
  if (q.h.service == Service::xrc && receive_srq(q) == nullptr)
    return refuse(q, Nak::invalid_request, EventType::qp_req_err);
  switch (q.opcode()) {
    case WqeOpcode::send:
    case WqeOpcode::send_imm:
    case WqeOpcode::send_inv: return do_send(q);
    case WqeOpcode::rdma_write:
    case WqeOpcode::rdma_write_imm:
      if (q.first()) count(q.qp, QueueCounter::rx_write_requests);
      return do_write(q);
    case WqeOpcode::rdma_read: count(q.qp, QueueCounter::rx_read_requests); return do_read(q);
    case WqeOpcode::atomic_cs:
    case WqeOpcode::atomic_fa:
    case WqeOpcode::masked_cs:
    case WqeOpcode::masked_fa: count(q.qp, QueueCounter::rx_atomic_requests); return do_atomic(q);
    default: return refuse(q, Nak::invalid_request, EventType::qp_req_err);
  }
}

// The requester repeats this request and all after it: drops responses to the later ones
// that are still queued, which would be sent twice, and delay the one it waits for
// until it gives up. A NAK that ended the connection stays queued.
void forget_responses(Request &q) {
  std::erase_if(q.r.responses, [&](const Response &x) {
    if (psn_diff(psn_add(x.psn, x.npsn - 1), q.h.psn) < 0) return false;
    if (x.ends()) return false;
    if (x.kind == Response::Kind::nak) q.r.nak_sent = false;
    return true;
  });
}

// A request that was seen before: answer it again without executing it twice.
void duplicate(Request &q) {
  switch (q.opcode()) {
    case WqeOpcode::rdma_read: forget_responses(q); return queue_read(q);
    case WqeOpcode::atomic_cs:
    case WqeOpcode::atomic_fa:
    case WqeOpcode::masked_cs:
    case WqeOpcode::masked_fa:
      forget_responses(q);
      // From the newest on: PSNs come again.
      for (auto replay = q.r.atomics.rbegin(); replay != q.r.atomics.rend(); ++replay)
        if (replay->psn == q.h.psn)
          return queue_atomic_result(q, replay->psn, replay->result, replay->bytes);
      return;
    default:
      if (q.last() || (q.h.flags & packet_ack_request) != 0)
        acknowledge(q, psn_add(q.r.expected_psn, 0xffffff));
  }
}

bool service_matches(const Qp &qp, Service s) {
  switch (qp.type) {
    case QpType::rc: return s == Service::rc;
    case QpType::uc: return s == Service::uc;
    case QpType::ud: return s == Service::ud;
    case QpType::xrc_tgt: return s == Service::xrc;
    case QpType::dct: return s == Service::dc;
    default: return false;
  }
}

Responder *dc_connection(Qp &qp, const PacketHeader &h) {
  // A wrong access key is not answered: to the initiator it looks like a
  // target that is not there.
  if (h.key != qp.dc_key) {
    SOFTHCA_LOG(debug, "DCT %#x: access key violation by QP %#x", qp.qpn, h.src_qpn);
    ++qp.dc_key_violations;
    if (std::exchange(qp.dc_key_armed, false) && qp.async.listener != nullptr)
      qp.async.listener->raise(QueueEvent::dct_key_violation);
    return nullptr;
  }
  auto &slot = qp.responder->connections[h.src_qpn];
  if (!slot || slot->connection != h.connection) {
    if ((h.flags & packet_connect) == 0) {
      if (!slot) qp.responder->connections.erase(h.src_qpn);
      return nullptr;  // of a connection that has ended
    }
    if (slot) abandon_message(qp, *slot);
    count(qp, QueueCounter::rx_dct_connect);
    slot = std::make_unique<Responder>();
    slot->connection = h.connection;
    slot->expected_psn = h.psn;
  }
  return slot.get();
}

// Only the last packet of a message shows whether it brings immediate data.
bool same_message(WqeOpcode a, WqeOpcode b) {
  const auto base = [](WqeOpcode op) {
    switch (op) {
      case WqeOpcode::send_imm:
      case WqeOpcode::send_inv: return WqeOpcode::send;
      case WqeOpcode::rdma_write_imm: return WqeOpcode::rdma_write;
      default: return op;
    }
  };
  return base(a) == base(b);
}

void execute_in_order(Request &q) {
  Responder &r = q.r;
  const i32 gap = psn_diff(q.h.psn, r.expected_psn);
  if (q.qp.type == QpType::uc) {
    // A gap drops the message it is in; the next first packet resynchronises.
    if (gap != 0 || q.first()) abandon_message(q.qp, r);
    if (!q.first() && !r.in_message) return;
    r.expected_psn = q.h.psn;
  } else if (gap < 0) {
    count(q.qp, QueueCounter::duplicate_request);
    return duplicate(q);
  } else if (gap > 0) {
    count(q.qp, QueueCounter::out_of_sequence);
    if (!r.nak_sent) negative(q, Nak::sequence, r.expected_psn);
    return;
  }
  r.nak_sent = false;
  if (q.first() == r.in_message) {
    // A message begins inside another one, or goes on without a beginning.
    return refuse(q, Nak::invalid_request, EventType::qp_req_err);
  }
  // Nor does its opcode change within the message.
  if (q.first()) r.xrc_srqn = q.h.xrc_srqn;
  else if (!same_message(q.opcode(), r.opcode) || q.h.xrc_srqn != r.xrc_srqn)
    return refuse(q, Nak::invalid_request, EventType::qp_req_err);
  execute(q);
}

bool push(Qp &qp, Responder &r) {
  while (!r.responses.empty()) {
    Response &next = r.responses.front();
    PacketHeader h{};
    h.src_qpn = qp.qpn;
    h.dst_qpn = r.peer_qpn;
    h.connection = r.connection;
    h.service = r.service;
    h.port = std::max<u8>(qp.attr.port, 1);
    h.migration_asked = qp.attr.path_state != PathState::migrated;
    h.src_lid = r.own_lid;
    h.dst_lid = r.peer_lid;
    if (r.grh) h.flags |= packet_grh;
    std::memcpy(h.sgid, r.own_gid, 16);
    std::memcpy(h.dgid, r.peer_gid, 16);
    h.message_bytes = r.message_number & 0xffffff;
    const u16 slot = slot_of_qpn(r.peer_qpn);
    if (next.kind == Response::Kind::read) {
      h.kind = PacketKind::read_response;
      h.offset = next.base + next.offset;
      h.payload = std::min(next.length - next.offset, burst_bytes);
      const u32 mtu = path_mtu_bytes(qp);
      h.psn = psn_add(next.psn, std::min(next.offset / mtu, next.npsn - 1));
      h.npsn = std::max<u32>((h.payload + mtu - 1) / mtu, 1);
      if (next.offset == 0) h.flags |= packet_first;
      if (next.offset + h.payload == next.length) h.flags |= packet_last;
      const u64 now_ns = qp.response_schedule != nullptr ? device_clock_ns() : 0;
      if (qp.response_schedule != nullptr && qp.response_schedule->due(now_ns) > now_ns)
        return false;
      const Sent sent = transmit_from(*qp.device, slot, h, &next.spans, next.offset, nullptr);
      if (sent == Sent::full) return false;
      if (sent == Sent::fault) {
        next.kind = Response::Kind::nak;
        next.nak = refusal(next.spans);
        r.responses.erase(r.responses.begin() + 1, r.responses.end());
        end_connection(qp, r, EventType::qp_access_err);
        continue;
      }
      next.offset += h.payload;
      if (qp.response_schedule != nullptr) qp.response_schedule->account(h.payload, now_ns);
      if (next.offset < next.length) continue;
    } else if (next.kind == Response::Kind::atomic) {
      h.kind = PacketKind::atomic_response;
      h.psn = next.psn;
      h.payload = next.result_bytes;
      if (transmit_from(*qp.device, slot, h, nullptr, 0, next.result) == Sent::full) return false;
    } else {
      h.kind = PacketKind::ack;
      h.nak = next.nak;
      h.timer = next.timer;
      h.psn = next.psn;
      if (transmit_from(*qp.device, slot, h, nullptr, 0, nullptr) == Sent::full) return false;
    }
    r.responses.pop_front();
  }
  return true;
}

}  // namespace

void abandon_message(Qp &qp, Responder &r) {
  r.in_message = false;
  if (!std::exchange(r.wqe.taken, false)) return;
  Srq *const srq = srq_of(qp, r.service, r.xrc_srqn);
  if (qp.type == QpType::uc && srq == nullptr) qp.rq_consumed = r.wqe.counter;
  else complete_receive_error(qp, srq, r.wqe, Syndrome::flush);
}

void qp_receive_request(Qp &qp, const PacketHeader &h, const u8 *payload) {
  if (qp.state < QpState::rtr || qp.state == QpState::err || !service_matches(qp, h.service) ||
      !qp.responder)
    return;  // not for us: no answer, the sender times out

  const bool connected = h.kind == PacketKind::request && qp.type != QpType::dct;
  if (connected && h.src_qpn != qp.attr.dest_qpn) return;
  // Wrong LID or GID: dropped.
  if (!takes_path(qp, h)) return;

  if (h.kind == PacketKind::datagram) return receive_datagram(qp, h, payload);

  Responder *r = qp.responder.get();
  if (qp.type == QpType::dct) {
    r = dc_connection(qp, h);
    if (r == nullptr || r->dead) return;
  }
  if (qp.state == QpState::rtr && qp.type != QpType::dct && !qp.comm_est_raised) {
    qp.comm_est_raised = true;
    qp_event(qp, EventType::comm_est);
  }
  r->peer_qpn = h.src_qpn;
  r->peer_lid = h.src_lid;
  r->own_lid = h.src_lid != 0 ? h.dst_lid : u16{0};  // on Ethernet it is no address
  std::memcpy(r->peer_gid, h.sgid, 16);
  std::memcpy(r->own_gid, h.dgid, 16);
  r->grh = (h.flags & packet_grh) != 0;
  r->service = h.service;
  Request request{qp, *r, h, payload};
  execute_in_order(request);
}

void qp_receive_multicast(Qp &qp, const PacketHeader &h, const u8 *payload) {
  receive_datagram(qp, h, payload);
}

namespace {

void close_connection(Qp &qp, decltype(Responder::connections)::iterator it) {
  abandon_message(qp, *it->second);
  qp.responder->connections.erase(it);
}

}  // namespace

bool qp_run_responder(Qp &qp) {
  if (!qp.responder) return true;
  if (qp.type != QpType::dct) return push(qp, *qp.responder);

  auto &connections = qp.responder->connections;
  auto &pending = qp.responder->pending;
  for (size_t i = 0; i < pending.size();) {
    const auto it = connections.find(pending[i]);
    if (it != connections.end()) {
      Responder &r = *it->second;
      if (!push(qp, r)) {
        ++i;
        continue;
      }
      r.listed = false;
      if (r.dead) close_connection(qp, it);
    }
    pending[i] = pending.back();
    pending.pop_back();
  }
  return pending.empty();
}

void qp_dc_disconnect(Qp &qp, const PacketHeader &h) {
  if (qp.type != QpType::dct || !qp.responder) return;
  auto &connections = qp.responder->connections;
  const auto it = connections.find(h.src_qpn);
  if (it == connections.end() || it->second->connection != h.connection) return;
  // Queued answers go first.
  if (it->second->responses.empty()) close_connection(qp, it);
  else it->second->dead = true;
}

u32 qp_live_rq_psn(const Qp &qp) {
  return qp.responder ? qp.responder->expected_psn : qp.attr.rq_psn;
}

}  // namespace softhca
