// Receive WQEs: taking them from a receive queue or an SRQ, resolving their
// scatter lists, completing them; and unreliable datagrams.
#include <algorithm>

#include "base/gid.h"
#include "base/log.h"
#include "config/identity.h"
#include "fault/faults.h"
#include "model/device.h"
#include "model/paging.h"
#include "model/responder.h"

namespace softhca {

namespace {

u16 rq_available(const Qp &qp) {
  if (qp.rq_wqes == 0 || qp.dbrec == nullptr) return 0;
  if (qp.slave_receive) return static_cast<u16>(qp.receive_released - qp.rq_consumed);
  return static_cast<u16>(read_doorbell(&qp.dbrec[0]) - qp.rq_consumed);
}

}  // namespace

void resolve_scatter(const u8 *segments, u32 count, u64 bytes, const Requester &who,
                     ReceiveWqe &out, PageFault *missing) {
  MkeyTable &keys = process().mkeys;
  for (u32 i = 0; i < count; ++i, segments += wqe_ds) {
    const u32 length = load_be32(segments);
    const u32 lkey = load_be32(segments + 4);
    if (length == 0 && lkey == terminator_lkey) break;
    if (length == 0) continue;
    const u64 needed = out.capacity < bytes ? std::min<u64>(length, bytes - out.capacity) : 0;
    const Syndrome s = needed == 0 ? Syndrome::ok
                                   : resolve(keys, lkey, load_be64(segments + 8), needed,
                                             access_local_write, who, out.spans, missing);
    if (s == Syndrome::page_fault) {
      out.status = s;
      return;
    }
    if (s != Syndrome::ok) {
      if (auto part =
              open_signed(keys, lkey, load_be64(segments + 8), length, access_local_write, who)) {
        part->position = out.capacity;
        out.capacity += part->wire.size();
        out.spans.push_back(
            {reinterpret_cast<u64>(part->wire.data()), part->wire.size(), Span::Kind::direct});
        out.signed_parts.push_back(std::move(part));
        continue;
      }
      SOFTHCA_LOG(debug, "receive WQE %u: lkey %#x refused", out.counter, lkey);
      out.status = Syndrome::local_protection;
    }
    out.capacity += length;
  }
}

void ReceiveWqe::reset() {
  taken = false;
  spans.clear();
  signed_parts.clear();
  capacity = 0;
  status = Syndrome::ok;
  tag = TagOutcome::none;
  header_bytes = 0;
}

namespace {

// For a receive WQE whose memory is not there: it is taken when the pages come, or fails.
bool waits_for_memory(Qp &qp, const PageFault &missing, ReceiveWqe &out) {
  if (out.status != Syndrome::page_fault) return false;
  const bool waits = wait_for_pages(qp, PageSide::receive, missing);
  out.status = waits ? Syndrome::ok : Syndrome::local_protection;
  return waits;
}

}  // namespace

namespace {

void inject_fault(ReceiveWqe &out) {
  if (!faults_configured() || out.status != Syndrome::ok) return;
  const WqeFault fault = fault_wqe("RECV");
  if (fault.syndrome != 0) out.status = static_cast<Syndrome>(fault.syndrome);
}

const u8 *head_of(const Srq &srq) { return srq.buffer + static_cast<u64>(srq.head) * srq.stride; }

void release_head(Srq &srq) {
  const u32 next = srq.cyclic ? srq.head + 1u : load_be16(head_of(srq) + 2);
  srq.head = static_cast<u16>(next & (srq.entries - 1));
  srq.consumed = static_cast<u16>(srq.consumed + 1);
  srq.strides.used = 0;
  srq_check_limit(srq);
}

}  // namespace

bool take_receive_wqe(Qp &qp, Srq *srq, u64 bytes, ReceiveWqe &out) {
  PageFault missing;
  out.reset();
  if (srq != nullptr) {
    if (srq_available(*srq) == 0) return false;
    out.counter = srq->head;
    resolve_scatter(head_of(*srq) + wqe_ds, srq->stride / wqe_ds - 1, bytes, {srq->pdn, qp.qpn},
                    out, &missing);
    if (waits_for_memory(qp, missing, out)) return false;
    release_head(*srq);
  } else {
    if (rq_available(qp) == 0) return false;
    const u8 *wqe = qp.rq + static_cast<u64>(qp.rq_consumed & (qp.rq_wqes - 1)) * qp.rq_stride;
    out.counter = qp.rq_consumed;
    u32 count = qp.rq_stride / wqe_ds;
    if (qp.wqe_signature) {  // a signature segment stands in front
      wqe += wqe_ds;
      --count;
    }
    resolve_scatter(wqe, count, bytes, {qp.pdn, qp.qpn}, out, &missing);
    if (waits_for_memory(qp, missing, out)) return false;
    qp.rq_consumed = static_cast<u16>(qp.rq_consumed + 1);
  }
  inject_fault(out);
  out.taken = true;
  return true;
}

Cq *completion_queue(const Qp &qp, const Srq *srq) {
  return srq != nullptr && srq->cq != nullptr ? srq->cq : qp.recv_cq;
}

namespace {

void address_fields(const Qp &qp, const Srq *srq, u16 counter, Cqe &cqe) {
  cqe.uidx(srq != nullptr && srq->type != SrqType::basic ? srq->uidx : qp.uidx);
  cqe.opcode_qpn(0, qp.qpn);
  cqe.wqe_counter(counter);
}

// The tag is reported once, with the match.
void describe_tagged(const ReceiveWqe &wqe, Cqe &cqe) {
  cqe.application(static_cast<u8>(wqe.tag), wqe.entry);
  if (wqe.matched() && wqe.tag != TagOutcome::expected && wqe.tag != TagOutcome::canceled)
    std::copy_n(wqe.tag_header.begin(), 16, cqe.raw);
}

void write_receive(Qp &qp, const Srq *srq, Cqe &cqe, CqeOpcode opcode, bool solicited,
                   const u8 *inline_data, u32 inline_bytes) {
  Cq *cq = completion_queue(qp, srq);
  if (cq == nullptr) return;
  if (!cq_write(*cq, cqe, opcode, solicited, inline_data, inline_bytes) &&
      qp.state != QpState::err && qp.type != QpType::dct)
    qp_fail(qp, EventType::qp_fatal);
}

}  // namespace

bool take_strides(Qp &qp, Srq &srq, u32 bytes, ReceiveWqe &out) {
  Strides &strides = srq.strides;
  const u32 need = std::max(strides.needed(bytes), 1u);
  const u16 posted = srq_available(srq);
  out.reset();
  if (posted == 0) return false;
  if (need > strides.left() && need <= strides.count()) {
    // What is left of the WQE stays unused; its owner has to know.
    if (posted == 1) return false;
    Cqe rest;
    address_fields(qp, &srq, srq.head, rest);
    rest.byte_count(filler_bit);
    rest.stride_index(static_cast<u16>(strides.used));
    rest.application(0, 0);
    write_receive(qp, &srq, rest, CqeOpcode::resp_send, false, nullptr, 0);
    release_head(srq);
  }
  PageFault missing;
  out.counter = srq.head;
  out.stride = strides.used;
  const u64 end = strides.offset() + bytes;
  resolve_scatter(head_of(srq) + wqe_ds, srq.stride / wqe_ds - 1, end, {srq.pdn, qp.qpn}, out,
                  &missing);
  if (waits_for_memory(qp, missing, out)) return false;
  if (out.status == Syndrome::ok && (need > strides.count() || end > out.capacity))
    out.status = Syndrome::local_length;
  inject_fault(out);
  out.taken = true;
  // A WQE with an error is used up.
  if (out.status != Syndrome::ok || need >= strides.left()) release_head(srq);
  else strides.used += need;
  return true;
}

Syndrome settle_signed(const Qp &qp, const Srq *srq, const ReceiveWqe &wqe, u64 bytes) {
  for (const auto &part : wqe.signed_parts) {
    if (!scatter_signed(*part, bytes)) return Syndrome::local_protection;
    report_signature_error(process().mkeys, *part, completion_queue(qp, srq));
  }
  return Syndrome::ok;
}

void complete_receive(Qp &qp, Srq *srq, const ReceiveWqe &wqe, CqeOpcode opcode,
                      const PacketHeader &h, u32 bytes, const u8 *inline_data, u32 inline_bytes) {
  Cqe cqe;
  address_fields(qp, srq, wqe.counter, cqe);
  u32 flags = (h.src_qpn & 0xffffff) | u32{h.sl & 0xfu} << 24;
  // The field says where the header stands. Connections have it nowhere.
  if ((h.flags & packet_grh) != 0 && (qp.type == QpType::ud || qp.type == QpType::dct)) {
    flags |= 1u << 28;
    if (qp.device->ethernet(std::max<u8>(qp.attr.port, 1))) {
      // On RoCE the SL bits name the network header: 0 GRH, 1 IPv6, 2 IPv4.
      flags = (flags & ~(0xfu << 24)) | (is_ipv4_gid(h.dgid) ? 2u : 1u) << 24;
    }
  }
  cqe.flags_rqpn(flags);
  cqe.slid(h.src_lid);
  cqe.byte_count(bytes);
  if ((h.flags & packet_imm) != 0) cqe.imm_raw(h.imm);
  else if ((h.flags & packet_inv) != 0) cqe.imm_host(h.imm);
  else cqe.pkey_raw(qp.general_services ? the_pkey : 0);  // an index, but for QP 1
  if (wqe.tag != TagOutcome::none) describe_tagged(wqe, cqe);
  if (srq != nullptr && srq->strides.on() && !wqe.matched())
    cqe.stride_index(static_cast<u16>(wqe.stride));
  write_receive(qp, srq, cqe, opcode, (h.flags & packet_solicited) != 0, inline_data, inline_bytes);
}

void complete_receive_error(Qp &qp, Srq *srq, const ReceiveWqe &wqe, Syndrome s) {
  Cqe cqe;
  address_fields(qp, srq, wqe.counter, cqe);
  if (wqe.matched()) {  // a buffer of the tag list has an end of its own
    cqe.application(static_cast<u8>(TagOutcome::canceled), wqe.entry);
    return write_receive(qp, srq, cqe, CqeOpcode::resp_send, true, nullptr, 0);
  }
  count_error(queue_counters(qp), s, true);
  cqe.error(s, vendor_syndrome(s, true));
  write_receive(qp, srq, cqe, CqeOpcode::resp_err, true, nullptr, 0);
}

bool qp_flush_receive(Qp &qp) {
  if (qp.srq != nullptr || qp.state != QpState::err) return false;
  bool any = false;
  // At most one queue's length: a doorbell further ahead cannot be true.
  for (u32 left = std::min<u32>(rq_available(qp), qp.rq_wqes); left != 0; --left) {
    ReceiveWqe wqe;
    wqe.counter = qp.rq_consumed;
    qp.rq_consumed = static_cast<u16>(qp.rq_consumed + 1);
    complete_receive_error(qp, nullptr, wqe, Syndrome::flush);
    any = true;
  }
  return any;
}

namespace {

constexpr u32 grh_bytes = 40;

// The first 40 bytes of a datagram's buffer as the application sees them.
void build_grh(const Qp &qp, const PacketHeader &h, u8 *grh) {
  std::memset(grh, 0, grh_bytes);
  const bool ethernet = qp.device->ethernet(std::max<u8>(qp.attr.port, 1));
  if (ethernet && is_ipv4_gid(h.dgid)) {
    // RoCE v2 over IPv4: the IP header fills the second half.
    u8 *ip = grh + 20;
    ip[0] = 0x45;
    ip[1] = h.traffic_class;
    store_be16(ip + 2, static_cast<u16>(20 + 8 + 12 + 8 + h.payload + 4));
    ip[6] = 0x40;
    ip[8] = h.hop_limit;
    ip[9] = 17;
    std::memcpy(ip + 12, h.sgid + 12, 4);
    std::memcpy(ip + 16, h.dgid + 12, 4);
    u32 sum = 0;
    for (u32 i = 0; i < 20; i += 2) sum += load_be16(ip + i);
    while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
    store_be16(ip + 10, static_cast<u16>(~sum));
    return;
  }
  store_be32(grh, 6u << 28 | u32{h.traffic_class} << 20 | (h.flow_label & 0xfffff));
  store_be16(grh + 4, static_cast<u16>(12 + 8 + h.payload + 4));  // BTH, DETH, payload, ICRC
  grh[6] = ethernet ? 17 : 0x1b;
  grh[7] = h.hop_limit;
  std::memcpy(grh + 8, h.sgid, 16);
  std::memcpy(grh + 24, h.dgid, 16);
}

}  // namespace

void receive_datagram(Qp &qp, const PacketHeader &h, const u8 *payload) {
  if (qp.type != QpType::ud || qp.state < QpState::rtr || qp.state == QpState::err) return;
  if (static_cast<u32>(h.key) != qp.attr.qkey) {
    SOFTHCA_LOG(debug, "QP %#x: Q_Key %#x does not match %#x", qp.qpn, static_cast<u32>(h.key),
                qp.attr.qkey);
    return;
  }
  const u32 bytes = h.payload + grh_bytes;
  ReceiveWqe wqe;
  if (!take_receive_wqe(qp, qp.srq, bytes, wqe)) {  // dropped, as unreliable means
    return count(qp, QueueCounter::out_of_buffer);
  }
  if (wqe.status == Syndrome::ok && bytes > wqe.capacity) wqe.status = Syndrome::local_length;
  if (wqe.status == Syndrome::ok) {
    u8 grh[grh_bytes];
    const bool has_grh = (h.flags & packet_grh) != 0;
    if (has_grh) build_grh(qp, h, grh);
    if ((has_grh && !write_spans(wqe.spans, 0, grh, grh_bytes)) ||
        !write_spans(wqe.spans, grh_bytes, payload, h.payload))
      wqe.status = Syndrome::local_protection;
    else wqe.status = settle_signed(qp, qp.srq, wqe, bytes);
  }
  if (wqe.status != Syndrome::ok) {
    complete_receive_error(qp, qp.srq, wqe, wqe.status);
    qp_fail(qp);
    return;
  }
  complete_receive(qp, qp.srq, wqe,
                   (h.flags & packet_imm) != 0 ? CqeOpcode::resp_send_imm : CqeOpcode::resp_send, h,
                   bytes);
}

}  // namespace softhca
