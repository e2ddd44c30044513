#include "model/tag_matching.h"

#include <algorithm>

#include "model/device.h"
#include "model/requester.h"
#include "model/responder.h"

namespace softhca {

namespace {

// Message headers (infiniband/tm_types.h).
enum HeaderOpcode : u8 {
  header_untagged = 0,
  header_rendezvous = 1,
  header_fin = 2,
  header_eager = 3
};
constexpr u32 tag_header_bytes = 16, tag_at = 8;
constexpr u32 rendezvous_header_bytes = 32, address_at = 16, rkey_at = 24, length_at = 28;

// List operations.
enum Operation : u8 { noop = 0, append = 1, remove = 2 };
constexpr u8 flag_software_count = 1 << 6, flag_completion = 1 << 7;
constexpr u32 segment_bytes = 32, tag_success = 0x80000000;

bool write_operation(Qp &qp, TagOutcome what, u16 index, bool success, u16 phase) {
  const Srq &srq = *qp.srq;
  Cqe cqe;
  cqe.uidx(srq.uidx);
  cqe.opcode_qpn(0, qp.qpn);
  cqe.application(static_cast<u8>(what), index);
  store_be32(cqe.raw, success ? tag_success : 0);
  store_be16(cqe.raw + 4, phase);
  return cq_write(*srq.cq, cqe, CqeOpcode::no_packet, false);
}

bool can_read(const Qp &qp) {
  return qp.type == QpType::rc && qp.state == QpState::rts && qp.send && !qp.send->blocked;
}

// Where a matched rendezvous goes: the device reads into the buffer if the
// data fits; else software gets the headers and does it.
void take_rendezvous(Qp &qp, const Srq &srq, const u8 *buffer, const PacketHeader &h,
                     ReceiveWqe &out) {
  const Requester who{srq.pdn, qp.qpn};
  const u32 length = load_be32(out.tag_header.data() + length_at);
  resolve_scatter(buffer, 1, length, who, out);
  if (length <= out.capacity && can_read(qp)) {
    out.tag = TagOutcome::consumed;
    out.header_bytes = h.payload;
    return;
  }
  out.spans.clear();
  out.capacity = 0;
  out.status = Syndrome::ok;
  resolve_scatter(buffer, 1, h.message_bytes, who, out);
  out.tag = TagOutcome::software_rendezvous;
}

void take_entry(Qp &qp, const Srq &srq, u16 index, const PacketHeader &h, const u8 *header,
                ReceiveWqe &out) {
  const TagList::Entry &entry = srq.tags->entries[index];
  out.reset();
  out.taken = true;
  out.entry = index;
  std::copy_n(header, out.tag_header.size(), out.tag_header.begin());
  if (header[0] == header_rendezvous) return take_rendezvous(qp, srq, entry.buffer.data(), h, out);
  resolve_scatter(entry.buffer.data(), 1, h.message_bytes - tag_header_bytes, {srq.pdn, qp.qpn},
                  out);
  out.header_bytes = tag_header_bytes;
  out.tag = TagOutcome::consumed_message;
  const bool one_packet = (h.flags & packet_last) != 0 && h.npsn == 1;
  if (one_packet || out.status != Syndrome::ok || h.message_bytes - tag_header_bytes > out.capacity)
    return;
  // Larger messages report the match at once and the data when it is there.
  out.tag = TagOutcome::consumed;
  complete_receive(qp, qp.srq, out, CqeOpcode::no_packet, h, h.message_bytes - tag_header_bytes);
  out.tag = TagOutcome::expected;
}

// A rendezvous comes in one piece; what is longer, or lies about its length, is
// a message like others.
bool well_formed(const PacketHeader &h, u8 opcode) {
  if (h.payload > h.message_bytes) return false;
  if (opcode == header_eager) return true;
  return h.payload == h.message_bytes && (h.flags & packet_last) != 0 &&
         h.payload >= rendezvous_header_bytes && h.payload <= max_rendezvous_header;
}

// Reads the data of a matched rendezvous; its header becomes the answer.
void start_reading(Qp &qp, ReceiveWqe &wqe, const u8 *header) {
  auto read = std::make_unique<SendWqe>();
  read->own = OwnWork::rendezvous_read;
  read->tag_entry = wqe.entry;
  read->opcode = WqeOpcode::rdma_read;
  read->remote_address = load_be64(header + address_at);
  read->rkey = load_be32(header + rkey_at);
  read->length = load_be32(header + length_at);
  read->spans = wqe.spans;
  read->inline_data.assign(header, header + rendezvous_header_bytes);
  read->inline_data[0] = header_fin;
  queue_own_work(qp, std::move(read));
}

void answer(Qp &qp, std::vector<u8> header) {
  auto fin = std::make_unique<SendWqe>();
  fin->own = OwnWork::rendezvous_fin;
  fin->opcode = WqeOpcode::send;
  fin->length = static_cast<u32>(header.size());
  fin->inline_data = std::move(header);
  fin->spans.push_back({reinterpret_cast<u64>(fin->inline_data.data()), fin->inline_data.size(),
                        Span::Kind::direct});
  queue_own_work(qp, std::move(fin));
}

}  // namespace

bool TagList::listed(u16 index) const {
  return std::find(order.begin(), order.end(), index) != order.end();
}

std::optional<u16> TagList::consume(u64 tag) {
  const auto it = std::find_if(order.begin(), order.end(), [&](u16 index) {
    const Entry &e = entries[index];
    return !e.deferred && ((e.tag ^ tag) & e.mask) == 0;
  });
  if (it == order.end()) return std::nullopt;
  const u16 index = *it;
  order.erase(it);
  return index;
}

bool TagList::remove(u16 index) { return std::erase(order, index) != 0; }

bool TagList::append(const Entry &entry, u16 next) {
  if (next >= entries.size() || listed(append_next)) return false;
  entries[append_next] = entry;
  entries[append_next].deferred = hardware_phase != software_phase;
  order.push_back(append_next);
  append_next = next;
  return true;
}

void TagList::synchronize(u16 count) {
  software_phase = count;
  if (hardware_phase != software_phase) return;
  for (u16 index : order) entries[index].deferred = false;
}

Syndrome execute_tag_operation(Qp &qp, const u8 *wqe, u32 ds) {
  const u8 *segment = wqe + wqe_ds;
  if (ds * wqe_ds < wqe_ds + segment_bytes) return Syndrome::local_qp_op;
  TagList &list = *qp.srq->tags;
  const u8 flags = segment[1];
  const u16 index = load_be16(segment + 2);
  if ((flags & flag_software_count) != 0) list.synchronize(load_be16(segment + 6));

  TagOutcome what = TagOutcome::noop;
  bool success = true;
  switch (segment[0] >> 4) {
    case noop: break;
    case append: {
      what = TagOutcome::append;
      if (ds * wqe_ds < wqe_ds + segment_bytes + wqe_ds) return Syndrome::local_qp_op;
      TagList::Entry entry;
      entry.tag = load_be64(segment + 16);
      entry.mask = load_be64(segment + 24);
      std::memcpy(entry.buffer.data(), segment + segment_bytes, wqe_ds);
      if (!list.append(entry, index)) return Syndrome::local_qp_op;
      break;
    }
    case remove:
      what = TagOutcome::remove;
      if (index >= list.entries.size()) return Syndrome::local_qp_op;
      success = list.remove(index);  // false: a message was faster
      break;
    default: return Syndrome::local_qp_op;
  }
  if ((flags & flag_completion) == 0 ||
      write_operation(qp, what, index, success, list.hardware_phase))
    return Syndrome::ok;
  return Syndrome::local_qp_op;  // no room to report it
}

bool match_tag(Qp &qp, Srq &srq, const PacketHeader &h, const u8 *payload, ReceiveWqe &out) {
  // A copy: its sender may be broken and write to it again.
  u8 header[rendezvous_header_bytes] = {};
  std::memcpy(header, payload, std::min(h.payload, rendezvous_header_bytes));
  const u8 opcode = h.payload >= tag_header_bytes ? header[0] : u8{header_untagged};
  const bool tagged = opcode == header_eager || opcode == header_rendezvous;
  if (tagged && well_formed(h, opcode)) {
    if (const auto index = srq.tags->consume(load_be64(header + tag_at))) {
      take_entry(qp, srq, *index, h, header, out);
      return true;
    }
  }
  out.tag = tagged ? TagOutcome::unexpected : TagOutcome::untagged;
  return false;
}

void complete_tagged(Qp &qp, Srq &srq, ReceiveWqe &wqe, CqeOpcode opcode, const PacketHeader &h,
                     u32 bytes) {
  if (wqe.tag != TagOutcome::consumed) return complete_receive(qp, &srq, wqe, opcode, h, bytes);
  const u8 *header = wqe.tag_header.data();
  complete_receive(qp, &srq, wqe, CqeOpcode::no_packet, h, load_be32(header + length_at));
  if (can_read(qp)) start_reading(qp, wqe, header);
}

void complete_rendezvous(Qp &qp, SendWqe &w) {
  if (w.own == OwnWork::rendezvous_fin) return;
  ReceiveWqe wqe;
  wqe.entry = w.tag_entry;
  wqe.tag = w.status == Syndrome::ok ? TagOutcome::expected : TagOutcome::canceled;
  PacketHeader from{};
  from.src_qpn = w.dest.qpn;
  from.sl = w.dest.sl;
  complete_receive(qp, qp.srq, wqe, CqeOpcode::resp_send, from, w.length);
  if (w.status == Syndrome::ok && can_read(qp)) answer(qp, std::move(w.inline_data));
}

}  // namespace softhca
