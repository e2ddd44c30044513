// Reads send WQEs as libmlx5 writes them: linearises, parses, resolves the
// data segments, and executes what needs no wire (NOP, UMR, LOCAL_INV).
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "fault/faults.h"
#include "model/cross_channel.h"
#include "model/device.h"
#include "model/paging.h"
#include "model/requester.h"
#include "model/tag_matching.h"

namespace softhca {

namespace {

constexpr u32 max_wqe_bytes = 1024;  // max_sq_desc_sz
constexpr u32 compact_av_bytes = 16, av_bytes = 48;
constexpr u32 inline_flag = 0x80000000;
constexpr size_t max_kept_inline = 16 * 1024;  // large TSO buffers are given back

// A linearised WQE and a read position behind the segments already taken.
struct Reader {
  const u8 *at;
  const u8 *end;
  bool take(u32 bytes, const u8 *&out) {
    if (static_cast<size_t>(end - at) < bytes) return false;
    out = at;
    at += bytes;
    return true;
  }
};

Syndrome refuse(SendWqe &out, Syndrome s) {
  out.status = s;
  out.vendor = vendor_syndrome(s, false);
  return s;
}

// The address vector of UD and DCI WQEs. Its first 16 bytes say whether the others are
// there; without them it is a LID alone.
bool parse_av(const Qp &qp, Reader &r, Destination &d) {
  constexpr u32 extended = 1u << 31;
  const u8 *av = nullptr, *rest = nullptr;
  d = {};
  if (!r.take(compact_av_bytes, av)) return false;
  d.qpn = load_be32(av + 8) & 0xffffff;
  d.sl = av[12] & 0xf;
  d.dlid = load_be16(av + 14);
  if (qp.type == QpType::dci) {
    d.key = load_be64(av);
  } else {
    const u32 qkey = load_be32(av);
    d.key = (qkey & 0x80000000) != 0 ? qp.attr.qkey : qkey;
  }
  const bool ethernet = qp.device->ethernet(std::max<u8>(qp.attr.port, 1));
  if ((load_be32(av + 8) & extended) == 0) return !ethernet;
  if (!r.take(av_bytes - compact_av_bytes, rest)) return false;
  d.traffic_class = av[26];
  d.hop_limit = av[27];
  const u32 grh = load_be32(av + 28);
  d.grh = ethernet || (grh >> 30 & 1) != 0;
  d.sgid_index = static_cast<u8>(grh >> 20 & 0xff);
  d.flow_label = grh & 0xfffff;
  std::memcpy(d.dgid, av + 32, 16);
  // On RoCE byte 14 holds the UDP source port, not an address.
  if (ethernet) d.dlid = 0;
  return true;
}

// Bytes of the operands behind the remote address segment, or 0 for a size
// the device does not do.
u32 parse_atomic_size(const Qp &qp, const u8 *ctrl, SendWqe &out) {
  const u8 opmod = ctrl[0];
  const bool extended = out.opcode == WqeOpcode::masked_cs || out.opcode == WqeOpcode::masked_fa;
  if (!extended) {
    out.atomic_size = 8;
    return opmod == 0 ? 16 : 0;
  }
  if ((opmod & 8) == 0 || (opmod & 7) > 3 || !qp.device->caps.extended_atomics) return 0;
  out.atomic_size = static_cast<u8>(4u << (opmod & 7));
  const u32 operands = out.opcode == WqeOpcode::masked_cs ? 4 : 2;
  return static_cast<u32>(align_up(u64{out.atomic_size} * operands, wqe_ds));
}

// Inline bytes live in the WQE: keeps them where the spans can find them, in
// their place between the pointers. A WQE holds no more than is reserved, so
// what is kept does not move.
void gather_inline(SendWqe &out, const u8 *data, u32 bytes) {
  if (bytes == 0) return;
  out.inline_data.reserve(max_wqe_bytes);
  const u64 kept = reinterpret_cast<u64>(out.inline_data.data()) + out.inline_data.size();
  out.inline_data.insert(out.inline_data.end(), data, data + bytes);
  out.spans.push_back({kept, bytes, Span::Kind::direct});
}

// What a key with signatures stands for, as it goes over the wire.
bool gather_under_signature(Qp &qp, SendWqe &out, const u8 *segment, u64 bytes, u32 need,
                            u64 &total) {
  auto part = open_signed(process().mkeys, load_be32(segment + 4), load_be64(segment + 8), bytes,
                          need, {qp.pdn, qp.qpn});
  if (part == nullptr || (!out.has_response() && !gather_signed(*part))) return false;
  if (part->error && qp.drain_sigerr && qp.send) qp.send->draining = true;
  part->position = total;
  total += part->wire.size();
  out.spans.push_back(
      {reinterpret_cast<u64>(part->wire.data()), part->wire.size(), Span::Kind::direct});
  out.signed_parts.push_back(std::move(part));
  return true;
}

// Gathers the data segments, pointers and inline ones in any order. For
// responses the memory must be writable.
Syndrome parse_data(Qp &qp, Reader &r, SendWqe &out) {
  const Requester who{qp.pdn, qp.qpn};
  const u32 need = out.has_response() ? u32{access_local_write} : 0;
  MkeyTable &keys = process().mkeys;
  u64 total = 0;
  const u8 *segment;
  while (r.take(wqe_ds, segment)) {
    const u32 count = load_be32(segment);
    if ((count & inline_flag) != 0) {
      const u32 bytes = count & ~inline_flag;
      const u8 *rest = nullptr;
      const u32 behind = static_cast<u32>(align_up(u64{bytes} + 4, wqe_ds)) - wqe_ds;
      if (bytes > max_wqe_bytes || out.has_response() || !r.take(behind, rest))
        return refuse(out, Syndrome::local_qp_op);
      gather_inline(out, segment + 4, bytes);
      total += bytes;
      continue;
    }
    const u32 lkey = load_be32(segment + 4);
    if (count == 0 && lkey == terminator_lkey) continue;
    // A byte count of 0 stands for 2 GiB; libmlx5 drops empty segments itself.
    const u64 bytes = count == 0 ? u64{1} << 31 : count;
    if (total + bytes > u64{1} << 31) return refuse(out, Syndrome::local_length);
    PageFault missing;
    const Syndrome s =
        resolve(keys, lkey, load_be64(segment + 8), bytes, need, who, out.spans, &missing);
    if (s == Syndrome::page_fault && wait_for_pages(qp, PageSide::send, missing))
      return refuse(out, s);
    if (s != Syndrome::ok) {
      if (gather_under_signature(qp, out, segment, bytes, need, total)) continue;
      SOFTHCA_LOG(debug, "QP %#x: lkey %#x refused for %llu bytes at %#llx", qp.qpn, lkey,
                  static_cast<unsigned long long>(bytes),
                  static_cast<unsigned long long>(load_be64(segment + 8)));
      return refuse(out, Syndrome::local_protection);
    }
    total += bytes;
  }
  if (out.is_atomic() && total != out.atomic_size) return refuse(out, Syndrome::local_length);
  if (total > std::min(qp.device->caps.max_message_bytes, qp.max_message_bytes))
    return refuse(out, Syndrome::local_length);
  out.length = static_cast<u32>(total);
  return Syndrome::ok;
}

bool opcode_allowed(const Qp &qp, WqeOpcode op) {
  if (qp.type == QpType::raw_packet)
    return op == WqeOpcode::nop ||
           (qp.device->caps.raw_ethernet &&
            (op == WqeOpcode::send || (op == WqeOpcode::tso && qp.device->caps.tso) ||
             (op == WqeOpcode::multi_packet && qp.device->caps.multi_packet_send)));
  switch (op) {
    case WqeOpcode::nop:
    case WqeOpcode::umr:
    case WqeOpcode::local_inv:
    case WqeOpcode::send:
    case WqeOpcode::send_imm: return true;
    case WqeOpcode::rdma_write:
    case WqeOpcode::rdma_write_imm: return qp.type != QpType::ud;
    case WqeOpcode::send_inv: return qp.type != QpType::ud && qp.type != QpType::uc;
    case WqeOpcode::rdma_read: return qp.type != QpType::ud && qp.type != QpType::uc;
    case WqeOpcode::atomic_cs:
    case WqeOpcode::atomic_fa:
    case WqeOpcode::masked_cs:
    case WqeOpcode::masked_fa:
      return qp.device->caps.atomics && qp.type != QpType::ud && qp.type != QpType::uc;
    case WqeOpcode::tag_matching:
      return qp.type == QpType::rc && qp.srq != nullptr && qp.srq->tags != nullptr;
    case WqeOpcode::set_psv: return qp.device->caps.signature;
    case WqeOpcode::wait:
    case WqeOpcode::send_enable:
    case WqeOpcode::receive_enable: return qp.master;
    case WqeOpcode::mmo:
      return qp.device->caps.dma_memcpy && qp.type != QpType::ud && qp.type != QpType::uc;
    default: return false;
  }
}

// Executes a UMR or LOCAL_INV.
Syndrome change_key(const Qp &qp, WqeOpcode op, const u8 *wqe, u32 ds) {
  MkeyTable &keys = process().mkeys;
  const Requester who{qp.pdn, qp.qpn, qp.for_keys};
  if (op == WqeOpcode::umr) return execute_umr(keys, wqe, ds, who);
  return invalidate(keys, load_be32(wqe + 12), who, false) ? Syndrome::ok : Syndrome::mw_bind;
}

// Hardware changes keys beside the queue: only a WQE with the small fence is sure to
// see what those before it did.
bool orders_key_changes(u32 fence) {
  constexpr u32 small = 1, strong_ordering = 3, small_and_fence = 4;
  return fence == small || fence == strong_ordering || fence == small_and_fence;
}

// Several packets in a WQE, without headers in the Ethernet segment: one in each data
// segment, or before that was invented (an opcode modifier of TSO) of mss bytes each.
Syndrome parse_packets(Qp &qp, Reader &r, SendWqe &out) {
  const u8 *eth, *segment;
  if (!r.take(wqe_ds, eth) || load_be16(eth + 12) != 0) return refuse(out, Syndrome::local_qp_op);
  const u32 each = out.opcode == WqeOpcode::tso ? load_be16(eth + 6) : 0;
  if (out.opcode == WqeOpcode::tso && each == 0) return refuse(out, Syndrome::local_qp_op);
  std::vector<u8> all;
  while (r.at != r.end) {
    Reader part{r.at, r.end};
    if (each == 0 && r.take(wqe_ds, segment)) {
      const u32 count = load_be32(segment);
      const u32 bytes = count & ~inline_flag;
      const u8 *rest;
      if (count != bytes &&
          (bytes > max_wqe_bytes ||
           !r.take(static_cast<u32>(align_up(u64{bytes} + 4, wqe_ds)) - wqe_ds, rest)))
        return refuse(out, Syndrome::local_qp_op);
      part.end = r.at;
    } else {
      r.at = r.end;
    }
    if (parse_data(qp, part, out) != Syndrome::ok) return out.status;
    if (const Syndrome s = add_packets(qp, eth, each, out, all); s != Syndrome::ok)
      return refuse(out, s);
  }
  const Syndrome s = finish_packets(out, all);
  return s == Syndrome::ok ? s : refuse(out, s);
}

Syndrome parse_frames(Qp &qp, Reader &r, SendWqe &out) {
  const u32 bytes = eth_segment_bytes(r.at, static_cast<size_t>(r.end - r.at));
  const u8 *segment;
  if (bytes == 0 || !r.take(bytes, segment)) return refuse(out, Syndrome::local_qp_op);
  if (parse_data(qp, r, out) != Syndrome::ok) return out.status;
  const Syndrome s = prepare_frames(qp, segment, out);
  return s == Syndrome::ok ? s : refuse(out, s);
}

Syndrome parse(Qp &qp, const u8 *wqe, u32 ds, SendWqe &out) {
  Reader r{wqe + wqe_ds, wqe + ds * wqe_ds};
  const u8 *segment;

  switch (out.opcode) {
    case WqeOpcode::nop: out.local = true; return Syndrome::ok;
    case WqeOpcode::umr:
    case WqeOpcode::local_inv: {
      out.local = true;
      if (qp.device->config->strict_ordering) {
        out.postponed.assign(wqe, r.end);
        return Syndrome::ok;
      }
      const Syndrome s = change_key(qp, out.opcode, wqe, ds);
      return s == Syndrome::ok ? s : refuse(out, s);
    }
    case WqeOpcode::set_psv:
      out.local = true;
      if (ds < 2 || !psvs().set(load_be32(wqe + 16) & 0xffffff, qp.pdn, load_be64(wqe + 24)))
        return refuse(out, Syndrome::local_qp_op);
      return Syndrome::ok;
    case WqeOpcode::mmo: {
      out.local = true;
      const Syndrome s = execute_memcpy(qp, wqe, ds);
      return s == Syndrome::ok ? s : refuse(out, s);
    }
    case WqeOpcode::wait:
    case WqeOpcode::send_enable:
    case WqeOpcode::receive_enable: {
      out.local = true;
      const Syndrome s = execute_cross_channel(qp, out.opcode, wqe, ds);
      return s == Syndrome::ok ? s : refuse(out, s);
    }
    case WqeOpcode::tag_matching: {
      out.local = true;
      const Syndrome s = execute_tag_operation(qp, wqe, ds);
      return s == Syndrome::ok ? s : refuse(out, s);
    }
    default: break;
  }
  if (qp.type == QpType::raw_packet) {
    constexpr u8 packets = 1;  // opcode modifier
    const bool several =
        out.opcode == WqeOpcode::multi_packet ||
        (out.opcode == WqeOpcode::tso && wqe[0] == packets && qp.device->caps.multi_packet_send);
    return several ? parse_packets(qp, r, out) : parse_frames(qp, r, out);
  }

  if (qp.type == QpType::ud || qp.type == QpType::dci) {
    if (!parse_av(qp, r, out.dest)) return refuse(out, Syndrome::local_qp_op);
    const auto &gids = qp.device->gids[std::max<u8>(qp.attr.port, 1) - 1u];
    if (out.dest.grh && (out.dest.sgid_index >= gids.size() || !gids[out.dest.sgid_index].valid))
      return refuse(out, Syndrome::local_qp_op);
  } else {
    connected_destination(qp, out.dest);
  }
  if (qp.type == QpType::xrc_ini) {
    if (!r.take(wqe_ds, segment)) return refuse(out, Syndrome::local_qp_op);
    out.xrc_srqn = load_be32(segment) & 0xffffff;
  }

  const bool rdma = out.opcode == WqeOpcode::rdma_write ||
                    out.opcode == WqeOpcode::rdma_write_imm || out.has_response();
  if (rdma) {
    if (!r.take(wqe_ds, segment)) return refuse(out, Syndrome::local_qp_op);
    out.remote_address = load_be64(segment);
    out.rkey = load_be32(segment + 8);
  }
  if (out.is_atomic()) {
    const u32 operands = parse_atomic_size(qp, wqe, out);
    if (operands == 0 || !r.take(operands, segment)) return refuse(out, Syndrome::local_qp_op);
    out.inline_data.assign(segment, segment + operands);
  }
  return parse_data(qp, r, out);
}

// Also one that is fetched and not yet on its way, or on its way again.
bool awaits_response(const SendEngine &send) {
  const auto waits = [](const auto &w) { return w->has_response() && !w->done; };
  return std::any_of(send.inflight.begin(), send.inflight.end(), waits);
}

}  // namespace

void connected_destination(const Qp &qp, Destination &d) {
  const AddressVector &av = qp.attr.av;
  d.qpn = qp.attr.dest_qpn;
  d.dlid = av.dlid;
  d.sl = av.sl;
  d.traffic_class = av.traffic_class;
  d.hop_limit = av.hop_limit;
  d.sgid_index = av.sgid_index;
  d.flow_label = av.flow_label;
  d.grh = av.is_global;
  std::memcpy(d.dgid, av.dgid, 16);
}

void SendWqe::clear() {
  static_cast<SendWqeFields &>(*this) = {};
  // These keep their capacity: WQEs are recycled.
  slots.clear();
  ends.clear();
  spans.clear();
  signed_parts.clear();
  postponed.clear();
  inline_data.clear();
  if (inline_data.capacity() > max_kept_inline) inline_data = {};
}

const char *opcode_name(WqeOpcode op) {
  switch (op) {
    case WqeOpcode::nop: return "NOP";
    case WqeOpcode::send_inv: return "SEND_INV";
    case WqeOpcode::rdma_write: return "RDMA_WRITE";
    case WqeOpcode::rdma_write_imm: return "RDMA_WRITE_IMM";
    case WqeOpcode::send: return "SEND";
    case WqeOpcode::send_imm: return "SEND_IMM";
    case WqeOpcode::tso: return "TSO";
    case WqeOpcode::wait: return "WAIT";
    case WqeOpcode::rdma_read: return "RDMA_READ";
    case WqeOpcode::atomic_cs: return "ATOMIC_CS";
    case WqeOpcode::atomic_fa: return "ATOMIC_FA";
    case WqeOpcode::send_enable: return "SEND_EN";
    case WqeOpcode::masked_cs: return "MASKED_CS";
    case WqeOpcode::masked_fa: return "MASKED_FA";
    case WqeOpcode::receive_enable: return "RECV_EN";
    case WqeOpcode::local_inv: return "LOCAL_INV";
    case WqeOpcode::set_psv: return "SET_PSV";
    case WqeOpcode::umr: return "UMR";
    case WqeOpcode::tag_matching: return "TAG_MATCHING";
    case WqeOpcode::multi_packet: return "ENHANCED_MPSW";
    case WqeOpcode::mmo: return "MMO";
  }
  return "UNKNOWN";
}

u32 path_mtu_bytes(const Qp &qp) {
  if (qp.type == QpType::ud) return qp.device->port(std::max<u8>(qp.attr.port, 1)).active_mtu;
  const u32 mtu = qp.attr.path_mtu;
  return mtu >= 1 && mtu <= 5 ? 128u << mtu : 1024;
}

Service service_of(const Qp &qp) {
  switch (qp.type) {
    case QpType::uc: return Service::uc;
    case QpType::ud: return Service::ud;
    case QpType::xrc_ini:
    case QpType::xrc_tgt: return Service::xrc;
    case QpType::dci:
    case QpType::dct: return Service::dc;
    default: return Service::rc;
  }
}

void queue_own_work(Qp &qp, std::unique_ptr<SendWqe> w) {
  connected_destination(qp, w->dest);
  qp.send->own.push_back(std::move(w));
  qp_wake(qp);
}

void change_key_now(Qp &qp, SendWqe &w) {
  if (w.postponed.empty()) return;
  const auto wqe = std::move(w.postponed);
  w.postponed.clear();
  w.done = true;
  const Syndrome s = change_key(qp, w.opcode, wqe.data(), static_cast<u32>(wqe.size() / wqe_ds));
  if (s == Syndrome::ok) return;
  refuse(w, s);
  qp.send->blocked = true;
}

u32 fetch_wqe(Qp &qp, SendWqe &out) {
  SendEngine &send = *qp.send;
  if (qp.send_pages == PageWait::waits) return 0;
  const u32 mask = qp.sq_wqebbs - 1;
  u8 wqe[max_wqe_bytes];
  std::memcpy(wqe, qp.sq + (qp.sq_consumed & mask) * wqe_bb, wqe_bb);
  const u32 ds = load_be32(wqe + 4) & 0x3f;
  const u32 blocks = std::clamp<u32>((ds + 3) / 4, 1, max_wqe_bytes / wqe_bb);

  const u8 fm_ce_se = wqe[11];
  const u32 fence = fm_ce_se >> 5;
  // Fence and strong ordering wait for READs and atomics.
  if (fence >= 2 && awaits_response(send)) return 0;
  if (static_cast<WqeOpcode>(wqe[3]) == WqeOpcode::wait && waits_for_completions(qp, wqe, ds))
    return 0;
  if (orders_key_changes(fence) && !send.inflight.empty())
    change_key_now(qp, *send.inflight.back());

  for (u32 i = 1; i < blocks; ++i)
    std::memcpy(wqe + i * wqe_bb, qp.sq + ((qp.sq_consumed + i) & mask) * wqe_bb, wqe_bb);

  out.clear();
  out.counter = qp.sq_consumed;
  out.opcode = static_cast<WqeOpcode>(wqe[3]);
  const u32 completion = fm_ce_se >> 2 & 3;
  out.signaled = completion >= 2;
  out.solicited = (fm_ce_se & 2) != 0;
  std::memcpy(&out.imm, wqe + 12, 4);
  if (qp.max_errored_streams != 0) {
    out.stream = load_be16(wqe + 9);
    if (send.errored_streams.count(out.stream) != 0) {
      out.flushed = true;
      refuse(out, Syndrome::flush);
      return blocks;
    }
  }

  if (ds == 0 || ds > max_wqe_bytes / wqe_ds || !opcode_allowed(qp, out.opcode) ||
      (load_be32(wqe + 4) >> 8) != qp.qpn) {
    SOFTHCA_LOG(debug, "QP %#x: WQE %u refused: opcode %#x, %u segments, QP in WQE %#x", qp.qpn,
                out.counter, wqe[3], ds, load_be32(wqe + 4) >> 8);
    refuse(out, Syndrome::local_qp_op);
  } else {
    parse(qp, wqe, ds, out);
  }
  if (out.status == Syndrome::page_fault) return 0;
  if (faults_configured() && out.status == Syndrome::ok) {
    const WqeFault fault = fault_wqe(opcode_name(out.opcode));
    if (fault.syndrome != 0) {
      out.status = static_cast<Syndrome>(fault.syndrome);
      out.vendor = fault.vendor != 0 ? fault.vendor : vendor_syndrome(out.status, false);
    }
  }
  return blocks;
}

}  // namespace softhca
