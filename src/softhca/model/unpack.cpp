#include "model/unpack.h"

#include "base/gid.h"
#include "base/prm.h"
#include "config/config.h"
#include "model/bth.h"
#include "model/crc.h"

namespace softhca {

namespace {

// What stands in front of the transport header, with ones for what may change on the way.
u32 masked_headers(const RoceDatagram &d, u8 *to) {
  u8 *p = to;
  std::memset(p, 0xff, 8);  // where the LRH would be
  p += 8;
  const u16 udp_length = static_cast<u16>(udp_bytes + d.size);
  if (is_ipv4_gid(d.dgid)) {
    p[0] = 0x45;
    p[1] = 0xff;
    store_be16(p + 2, static_cast<u16>(ipv4_bytes + udp_length));
    store_be32(p + 4, 0x00004000);  // identification 0, do not fragment
    p[8] = 0xff;
    p[9] = 17;
    store_be16(p + 10, 0xffff);
    std::memcpy(p + 12, d.sgid + 12, 4);
    std::memcpy(p + 16, d.dgid + 12, 4);
    p += ipv4_bytes;
  } else {
    store_be32(p, 0x6fffffff);
    store_be16(p + 4, udp_length);
    p[6] = 17;
    p[7] = 0xff;
    std::memcpy(p + 8, d.sgid, 16);
    std::memcpy(p + 24, d.dgid, 16);
    p += ipv6_bytes;
  }
  store_be16(p, d.source_port);
  store_be16(p + 2, config().udp_port);
  store_be16(p + 4, udp_length);
  store_be16(p + 6, 0xffff);
  return static_cast<u32>(p + udp_bytes - to);
}

// What an opcode is and what stands behind the transport header.
struct Form {
  PacketKind kind;
  WqeOpcode opcode;
  u8 flags;
  bool reth, aeth;
};

constexpr u8 only = packet_first | packet_last;

bool form_of(u8 opcode, Form &f) {
  using K = PacketKind;
  using W = WqeOpcode;
  switch (opcode & ~bth::service_mask) {
    case bth::send_first: f = {K::request, W::send, packet_first, false, false}; break;
    case bth::send_middle: f = {K::request, W::send, 0, false, false}; break;
    case bth::send_last: f = {K::request, W::send, packet_last, false, false}; break;
    case bth::send_last_imm:
      f = {K::request, W::send_imm, packet_last | packet_imm, false, false};
      break;
    case bth::send_only: f = {K::request, W::send, only, false, false}; break;
    case bth::send_only_imm: f = {K::request, W::send_imm, only | packet_imm, false, false}; break;
    case bth::write_first: f = {K::request, W::rdma_write, packet_first, true, false}; break;
    case bth::write_middle: f = {K::request, W::rdma_write, 0, false, false}; break;
    case bth::write_last: f = {K::request, W::rdma_write, packet_last, false, false}; break;
    case bth::write_last_imm:
      f = {K::request, W::rdma_write_imm, packet_last | packet_imm, false, false};
      break;
    case bth::write_only: f = {K::request, W::rdma_write, only, true, false}; break;
    case bth::write_only_imm:
      f = {K::request, W::rdma_write_imm, only | packet_imm, true, false};
      break;
    case bth::read_request: f = {K::request, W::rdma_read, only, true, false}; break;
    case bth::compare_swap: f = {K::request, W::atomic_cs, only, false, false}; break;
    case bth::fetch_add: f = {K::request, W::atomic_fa, only, false, false}; break;
    case bth::send_last_inv:
      f = {K::request, W::send_inv, packet_last | packet_inv, false, false};
      break;
    case bth::send_only_inv: f = {K::request, W::send_inv, only | packet_inv, false, false}; break;
    case bth::read_first: f = {K::read_response, W::nop, packet_first, false, true}; break;
    case bth::read_middle: f = {K::read_response, W::nop, 0, false, false}; break;
    case bth::read_last: f = {K::read_response, W::nop, packet_last, false, true}; break;
    case bth::read_only: f = {K::read_response, W::nop, only, false, true}; break;
    case bth::acknowledge: f = {K::ack, W::nop, 0, false, true}; break;
    case bth::atomic_acknowledge: f = {K::atomic_response, W::nop, 0, false, true}; break;
    default: return false;
  }
  return true;
}

bool atomic(const Form &f) {
  return f.opcode == WqeOpcode::atomic_cs || f.opcode == WqeOpcode::atomic_fa;
}

// Not every service has every opcode.
bool service_of(u8 opcode, Form &f, Service &s) {
  const bool plain = f.kind == PacketKind::request && !atomic(f) &&
                     f.opcode != WqeOpcode::rdma_read && f.opcode != WqeOpcode::send_inv;
  switch (opcode & bth::service_mask) {
    case bth::rc: s = Service::rc; return true;
    case bth::xrc: s = Service::xrc; return true;
    case bth::uc: s = Service::uc; return plain;
    case bth::ud:
      s = Service::ud;
      f.kind = PacketKind::datagram;
      return plain && !f.reth && (f.flags & only) == only;
    default: return false;
  }
}

bool read_syndrome(u8 syndrome, PacketHeader &h) {
  switch (syndrome >> 5) {
    case 0: h.nak = Nak::none; return true;
    case 1:
      h.nak = Nak::rnr;
      h.timer = syndrome & 0x1f;
      return true;
    case 3: break;
    default: return false;
  }
  constexpr Nak naks[] = {Nak::sequence, Nak::invalid_request, Nak::remote_access,
                          Nak::remote_operation};
  const u8 code = syndrome & 0x1f;
  if (code >= std::size(naks)) return false;
  h.nak = naks[code];
  return true;
}

// Reads headers one behind the other; `fits` stays false once they do not.
class Reader {
 public:
  Reader(const u8 *p, u32 bytes) : p_(p), left_(bytes) {}
  const u8 *take(u32 bytes) {
    static constexpr u8 nothing[32] = {};
    if (!fits || bytes > left_) {
      fits = false;
      return nothing;
    }
    const u8 *at = p_;
    p_ += bytes;
    left_ -= bytes;
    return at;
  }
  u32 left() const { return left_; }
  const u8 *at() const { return p_; }
  bool fits = true;

 private:
  const u8 *p_;
  u32 left_;
};

void read_extended(Reader &r, const Form &f, Arrival &a) {
  PacketHeader &h = a.header;
  if (h.kind == PacketKind::datagram) {
    const u8 *deth = r.take(deth_bytes);
    h.key = load_be32(deth);
    h.src_qpn = load_be32(deth + 4) & 0xffffff;
  }
  if (h.service == Service::xrc && h.kind == PacketKind::request)
    h.xrc_srqn = load_be32(r.take(xrceth_bytes)) & 0xffffff;
  if (f.reth) {
    const u8 *reth = r.take(reth_bytes);
    h.remote_address = load_be64(reth);
    h.rkey = load_be32(reth + 8);
    h.message_bytes = load_be32(reth + 12);
  }
  if (atomic(f)) {
    const u8 *eth = r.take(atomic_eth_bytes);
    h.remote_address = load_be64(eth);
    h.rkey = load_be32(eth + 8);
    h.message_bytes = h.atomic_size = 8;
    h.payload = 16;
    a.payload = eth + 12;  // swap or add, compare: as in the WQE
  }
  if (f.aeth) {
    const u32 aeth = load_be32(r.take(aeth_bytes));
    h.message_bytes = aeth & 0xffffff;
    r.fits &= read_syndrome(static_cast<u8>(aeth >> 24), h);
    r.fits &= h.kind == PacketKind::ack || h.nak == Nak::none;
  }
  if (h.kind == PacketKind::atomic_response) {
    const u64 original = load_be64(r.take(atomic_ack_bytes));
    std::memcpy(a.value, &original, 8);
    h.payload = 8;
    a.payload = a.value;
  }
  if ((h.flags & packet_imm) != 0) std::memcpy(&h.imm, r.take(imm_bytes), 4);
  if ((h.flags & packet_inv) != 0) h.imm = load_be32(r.take(imm_bytes));
}

}  // namespace

bool icrc_holds(const RoceDatagram &d) {
  if (d.size < bth_bytes + icrc_bytes) return false;
  u8 masked[8 + ipv6_bytes + udp_bytes + bth_bytes];
  const u32 headers = masked_headers(d, masked);
  std::memcpy(masked + headers, d.bytes, bth_bytes);
  masked[headers + 4] = 0xff;
  const u32 body = d.size - bth_bytes - icrc_bytes;
  u32 crc = crc32_add(~0u, masked, headers + bth_bytes);
  crc = ~crc32_add(crc, d.bytes + bth_bytes, body);
  u32 stored;
  std::memcpy(&stored, d.bytes + d.size - icrc_bytes, 4);
  if (crc == stored) return true;
  if (!is_ipv4_gid(d.dgid)) return false;
  // The CRC is linear: the difference, run back to in front of the
  // identification, is the identification.
  const u32 behind = headers - 8 - 4 + bth_bytes + body;
  return crc32_back(crc ^ stored, behind) <= 0xffff;
}

bool unpack(const RoceDatagram &d, Arrival &a) {
  a.header = {};
  PacketHeader &h = a.header;
  if (d.size < bth_bytes + icrc_bytes) return false;
  const u8 *bth = d.bytes;
  Form f{};
  if (!form_of(bth[0], f) || !service_of(bth[0], f, h.service)) return false;
  constexpr u16 default_partition = 0x7fff;
  if ((bth[1] & 0xf) != 0 || (load_be16(bth + 2) & 0x7fff) != default_partition) return false;
  h.kind = f.kind;
  h.opcode = static_cast<u8>(f.opcode);
  h.flags = f.flags | packet_grh;
  if ((bth[1] & 0x80) != 0) h.flags |= packet_solicited;
  h.dst_qpn = load_be32(bth + 4) & 0xffffff;
  if ((bth[8] & 0x80) != 0 && (f.flags & packet_last) == 0 && f.kind == PacketKind::request)
    h.flags |= packet_ack_request;
  h.psn = load_be32(bth + 8) & 0xffffff;
  h.npsn = 1;
  h.traffic_class = d.traffic_class;
  h.hop_limit = d.hop_limit;
  h.udp_sport = d.source_port;
  std::memcpy(h.sgid, d.sgid, 16);
  std::memcpy(h.dgid, d.dgid, 16);

  Reader r(bth + bth_bytes, d.size - bth_bytes - icrc_bytes);
  a.payload = nullptr;
  read_extended(r, f, a);
  if (!r.fits) return false;
  const u32 pad = bth[1] >> 4 & 3;
  if (a.payload != nullptr || f.kind == PacketKind::ack || f.opcode == WqeOpcode::rdma_read)
    return r.left() == 0 && pad == 0;
  if (r.left() < pad || r.left() % 4 != 0 || r.left() > max_mtu_bytes) return false;
  h.payload = r.left() - pad;
  a.payload = r.at();
  // The packets in front of the last one are full: there is nothing to pad.
  if ((f.flags & packet_last) == 0 && pad != 0) return false;
  const bool sends = f.opcode == WqeOpcode::send || f.opcode == WqeOpcode::send_imm ||
                     f.opcode == WqeOpcode::send_inv;
  if (sends && (f.flags & packet_first) != 0)
    h.message_bytes = (f.flags & packet_last) != 0 ? h.payload : unknown_length;
  return true;
}

}  // namespace softhca
