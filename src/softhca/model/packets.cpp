#include "model/packets.h"

#include <algorithm>
#include <array>

#include "base/gid.h"
#include "base/prm.h"
#include "config/identity.h"
#include "model/bth.h"

namespace softhca {

namespace {

constexpr u32 atomic_address_bytes = atomic_eth_bytes - 16;

class Writer {
 public:
  explicit Writer(Packet &to) : to_(to) {}
  void be8(u32 v) { to_.push_back(static_cast<u8>(v)); }
  void be16(u32 v) {
    be8(v >> 8);
    be8(v);
  }
  void be24(u32 v) {
    be8(v >> 16);
    be16(v);
  }
  void be32(u32 v) {
    be16(v >> 16);
    be16(v);
  }
  void be64(u64 v) {
    be32(static_cast<u32>(v >> 32));
    be32(static_cast<u32>(v));
  }
  void bytes(const void *p, size_t n) {
    const u8 *b = static_cast<const u8 *>(p);
    to_.insert(to_.end(), b, b + n);
  }

 private:
  Packet &to_;
};

u8 service_bits(Service s) {
  switch (s) {
    case Service::uc: return bth::uc;
    case Service::ud: return bth::ud;
    case Service::xrc: return bth::xrc;
    default: return bth::rc;
  }
}

// The MAC address behind a GID: that of a configured port, or what addresses of
// other hosts derive from (identity.h).
std::array<u8, 6> mac_of(const u8 *gid) {
  const Config &c = config();
  for (u32 d = 0; d < c.devices.size(); ++d)
    for (u32 p = 1; p <= c.devices[d].ports.size(); ++p)
      for (const PortGid &own : port_gids(c, d, p))
        if (std::equal(own.gid.begin(), own.gid.end(), gid)) return port_mac(c, d, p);
  if (gid[0] == 0xff) return {0x33, 0x33, gid[12], gid[13], gid[14], gid[15]};
  if (is_ipv4_gid(gid)) {
    if (gid[12] >> 4 == 0xe)
      return {0x01, 0x00, 0x5e, static_cast<u8>(gid[13] & 0x7f), gid[14], gid[15]};
    return {0x02, 0x53, 0x48, gid[15], gid[13], gid[14]};
  }
  return {static_cast<u8>(gid[8] ^ 2), gid[9], gid[10], gid[13], gid[14], gid[15]};
}

// One transport packet: BTH, extended headers and payload, padded.
struct Transport {
  u8 opcode = 0;
  bool solicited = false, wants_ack = false;
  u32 psn = 0;
  Packet extended;
  const u8 *payload = nullptr;
  u32 bytes = 0;
};

Packet bare(const PacketHeader &h, const Transport &t) {
  Packet p;
  Writer w(p);
  const u32 pad = (4 - t.bytes % 4) % 4;
  w.be8(t.opcode);
  w.be8((t.solicited ? 0x80u : 0) | (h.migration_asked != 0 ? 0 : 0x40u) | pad << 4);  // version 0
  w.be16(h.pkey != 0 ? h.pkey : 0xffff);
  w.be8(0);
  w.be24(h.dst_qpn);
  w.be8(t.wants_ack ? 0x80 : 0);
  w.be24(t.psn);
  w.bytes(t.extended.data(), t.extended.size());
  w.bytes(t.payload, t.bytes);
  for (u32 i = 0; i < pad; ++i) w.be8(0);
  return p;
}

u16 ones_complement(const u8 *p, size_t n, u32 sum = 0) {
  for (size_t i = 0; i < n; i += 2) sum += i + 1 < n ? load_be16(p + i) : u32{p[i]} << 8;
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<u16>(~sum);
}

void append_le32(Packet &p, u32 v) {
  for (int i = 0; i < 4; ++i) p.push_back(static_cast<u8>(v >> 8 * i));
}

// What a switch of an Ethernet sees.
Packet on_ethernet(const PacketHeader &h, const Packet &inner) {
  Packet p;
  Writer w(p);
  const auto to = mac_of(h.dgid), from = mac_of(h.sgid);
  const bool ipv4 = is_ipv4_gid(h.dgid);
  const u32 udp_length = udp_bytes + static_cast<u32>(inner.size()) + 4;
  w.bytes(to.data(), 6);
  w.bytes(from.data(), 6);
  w.be16(ipv4 ? 0x0800 : 0x86dd);
  if (ipv4) {
    w.be8(0x45);
    w.be8(h.traffic_class);
    w.be16(ipv4_bytes + udp_length);
    w.be32(0x00004000);  // do not fragment
    w.be8(h.hop_limit != 0 ? h.hop_limit : 64);
    w.be8(17);
    w.be16(0);
    w.bytes(h.sgid + 12, 4);
    w.bytes(h.dgid + 12, 4);
    store_be16(p.data() + ether_bytes + 10, ones_complement(p.data() + ether_bytes, ipv4_bytes));
  } else {
    w.be32(6u << 28 | u32{h.traffic_class} << 20 | (h.flow_label & 0xfffff));
    w.be16(udp_length);
    w.be8(17);
    w.be8(h.hop_limit != 0 ? h.hop_limit : 64);
    w.bytes(h.sgid, 16);
    w.bytes(h.dgid, 16);
  }
  const size_t udp_at = p.size();
  // One flow, one port: switches spread flows by it.
  w.be16(h.udp_sport != 0 ? h.udp_sport
                          : 0xc000 | ((h.src_qpn ^ h.src_qpn >> 14 ^ h.dst_qpn) & 0x3fff));
  w.be16(config().udp_port);
  w.be16(udp_length);
  w.be16(0);  // no checksum; IPv6 must have one
  w.bytes(inner.data(), inner.size());
  append_le32(p, invariant_crc(p, true));
  if (!ipv4) {
    u32 sum = 17 + udp_length;
    for (size_t i = 0; i < 32; i += 2) sum += load_be16(p.data() + ether_bytes + 8 + i);
    const u16 checksum = ones_complement(p.data() + udp_at, p.size() - udp_at, sum);
    store_be16(p.data() + udp_at + 6, checksum != 0 ? checksum : 0xffff);
  }
  return p;
}

// From the local route header to the variant CRC.
Packet on_infiniband(const PacketHeader &h, const Packet &inner) {
  Packet p;
  Writer w(p);
  const bool global = (h.flags & packet_grh) != 0;
  const size_t bytes = lrh_bytes + (global ? ipv6_bytes : 0) + inner.size() + 4;
  w.be8(0);  // virtual lane 0, version 0
  w.be8(u32{h.sl & 0xfu} << 4 | (global ? 3u : 2u));
  w.be16(h.dst_lid);
  w.be16(static_cast<u32>(bytes / 4));
  w.be16(h.src_lid);
  if (global) {
    w.be32(6u << 28 | u32{h.traffic_class} << 20 | (h.flow_label & 0xfffff));
    w.be16(static_cast<u32>(inner.size()) + 4);
    w.be8(0x1b);
    w.be8(h.hop_limit);
    w.bytes(h.sgid, 16);
    w.bytes(h.dgid, 16);
  }
  w.bytes(inner.data(), inner.size());
  append_le32(p, invariant_crc(p, false));
  const u16 crc = variant_crc(p);
  p.push_back(static_cast<u8>(crc));
  p.push_back(static_cast<u8>(crc >> 8));
  return p;
}

Packet reth(u64 address, u32 rkey, u32 bytes) {
  Packet p;
  Writer w(p);
  w.be64(address);
  w.be32(rkey);
  w.be32(bytes);
  return p;
}

Packet aeth(u8 syndrome, u32 sequence) {
  Packet p;
  Writer w(p);
  w.be8(syndrome);
  w.be24(sequence);
  return p;
}

u8 aeth_syndrome(const PacketHeader &h) {
  switch (h.nak) {
    case Nak::none: return 0x1f;  // no end-to-end credits
    case Nak::rnr: return static_cast<u8>(0x20 | (h.timer & 0x1f));
    case Nak::sequence: return 0x60;
    case Nak::invalid_request: return 0x61;
    case Nak::remote_access: return 0x62;
    case Nak::remote_operation: break;
  }
  return 0x63;
}

// A SEND or an RDMA WRITE, cut into packets.
std::vector<Transport> message(const PacketHeader &h, const u8 *payload) {
  const auto op = static_cast<WqeOpcode>(h.opcode);
  const bool write = op == WqeOpcode::rdma_write || op == WqeOpcode::rdma_write_imm;
  const u32 mtu = mtu_of(h), count = std::max<u32>((h.payload + mtu - 1) / mtu, 1);
  const bool imm = (h.flags & packet_imm) != 0, inv = (h.flags & packet_inv) != 0;
  std::vector<Transport> out;
  for (u32 i = 0; i < count; ++i) {
    Transport t;
    const bool first = i == 0 && (h.flags & packet_first) != 0;
    const bool last = i + 1 == count && (h.flags & packet_last) != 0;
    const u8 base = write ? bth::write_first : bth::send_first;
    if (first && last) t.opcode = static_cast<u8>(base + 4 + imm);
    else if (last) t.opcode = static_cast<u8>(base + 2 + imm);
    else t.opcode = static_cast<u8>(base + (first ? 0 : 1));
    if (last && inv) t.opcode = first ? bth::send_only_inv : bth::send_last_inv;
    t.psn = psn_add(h.psn, i);
    t.solicited = last && (h.flags & packet_solicited) != 0;
    const bool asks = last || (i + 1 == count && (h.flags & packet_ack_request) != 0);
    t.wants_ack = asks && h.service != Service::uc;
    t.payload = payload + i * mtu;
    t.bytes = std::min(mtu, h.payload - i * mtu);
    Writer w(t.extended);
    if (h.service == Service::xrc) w.be32(h.xrc_srqn & 0xffffff);
    if (write && first) {
      const Packet r = reth(h.remote_address, h.rkey, h.message_bytes);
      w.bytes(r.data(), r.size());
    }
    if (last && imm) w.bytes(&h.imm, 4);  // in network order as it is
    if (last && inv) w.be32(h.imm);
    out.push_back(std::move(t));
  }
  return out;
}

std::vector<Transport> request(const PacketHeader &h, const u8 *payload) {
  Transport t;
  t.psn = h.psn;
  t.wants_ack = true;
  Writer w(t.extended);
  switch (static_cast<WqeOpcode>(h.opcode)) {
    case WqeOpcode::rdma_read: {
      t.opcode = bth::read_request;
      if (h.service == Service::xrc) w.be32(h.xrc_srqn & 0xffffff);
      const Packet r = reth(h.remote_address, h.rkey, h.message_bytes);
      w.bytes(r.data(), r.size());
      return {t};
    }
    case WqeOpcode::atomic_cs:
    case WqeOpcode::atomic_fa: {
      if (h.atomic_size != 8 || h.payload < 16) return {};  // extended atomics: not public
      const bool swap = static_cast<WqeOpcode>(h.opcode) == WqeOpcode::atomic_cs;
      t.opcode = swap ? bth::compare_swap : bth::fetch_add;
      if (h.service == Service::xrc) w.be32(h.xrc_srqn & 0xffffff);
      w.be64(h.remote_address);
      w.be32(h.rkey);
      w.bytes(payload, 16);  // swap or add, compare
      return {t};
    }
    case WqeOpcode::masked_cs:
    case WqeOpcode::masked_fa: return {};
    default: return message(h, payload);
  }
}

std::vector<Transport> response(const PacketHeader &h, const u8 *payload) {
  const u32 mtu = mtu_of(h), count = std::max<u32>((h.payload + mtu - 1) / mtu, 1);
  std::vector<Transport> out;
  for (u32 i = 0; i < count; ++i) {
    Transport t;
    const bool first = i == 0 && (h.flags & packet_first) != 0;
    const bool last = i + 1 == count && (h.flags & packet_last) != 0;
    t.opcode = first && last ? bth::read_only
               : first       ? bth::read_first
               : last        ? bth::read_last
                             : bth::read_middle;
    t.psn = psn_add(h.psn, i);
    t.payload = payload + i * mtu;
    t.bytes = std::min(mtu, h.payload - i * mtu);
    if (first || last) t.extended = aeth(0x1f, h.message_bytes);
    out.push_back(std::move(t));
  }
  return out;
}

std::vector<Transport> transport_of(const PacketHeader &h, const u8 *payload) {
  switch (h.kind) {
    case PacketKind::request: return request(h, payload);
    case PacketKind::read_response: return response(h, payload);
    case PacketKind::ack: {
      Transport t;
      t.opcode = bth::acknowledge;
      t.psn = h.psn;
      t.extended = aeth(aeth_syndrome(h), h.message_bytes);
      return {t};
    }
    case PacketKind::atomic_response: {
      if (h.payload != 8) return {};
      Transport t;
      t.opcode = bth::atomic_acknowledge;
      t.psn = h.psn;
      t.extended = aeth(0x1f, h.message_bytes);
      u64 original;  // as the requester's memory holds it
      std::memcpy(&original, payload, 8);
      Writer(t.extended).be64(original);
      return {t};
    }
    case PacketKind::datagram: {
      Transport t;
      const bool imm = (h.flags & packet_imm) != 0;
      t.opcode = imm ? bth::send_only_imm : bth::send_only;
      t.psn = h.psn;
      t.solicited = (h.flags & packet_solicited) != 0;
      t.payload = payload;
      t.bytes = h.payload;
      Writer w(t.extended);
      w.be32(static_cast<u32>(h.key));
      w.be32(h.src_qpn & 0xffffff);
      if (imm) w.bytes(&h.imm, 4);
      return {t};
    }
    default: return {};
  }
}

}  // namespace

// The smallest MTU that makes as many packets of it as it has sequence numbers.
u32 mtu_of(const PacketHeader &h) {
  u32 mtu = 256;
  while (mtu < 4096 && (h.payload + mtu - 1) / mtu > std::max<u32>(h.npsn, 1)) mtu *= 2;
  return mtu;
}

Traffic traffic_of(const PacketHeader &h) {
  if (h.kind == PacketKind::ethernet) return {1, h.payload};
  const auto op = static_cast<WqeOpcode>(h.opcode);
  const bool first = (h.flags & packet_first) != 0, last = (h.flags & packet_last) != 0;
  u64 packets = 1, extended = 0;
  switch (h.kind) {
    case PacketKind::request:
      if (op == WqeOpcode::rdma_read) {
        extended = reth_bytes;
      } else if (op == WqeOpcode::atomic_cs || op == WqeOpcode::atomic_fa ||
                 op == WqeOpcode::masked_cs || op == WqeOpcode::masked_fa) {
        extended = atomic_address_bytes;  // the operands are payload
      } else {
        const bool write = op == WqeOpcode::rdma_write || op == WqeOpcode::rdma_write_imm;
        packets = std::max<u32>(h.npsn, 1);
        if (write && first) extended += reth_bytes;
        if (last && (h.flags & (packet_imm | packet_inv)) != 0) extended += imm_bytes;
      }
      if (h.service == Service::xrc) extended += packets * xrceth_bytes;
      break;
    case PacketKind::read_response:
      packets = std::max<u32>(h.npsn, 1);
      if (first || last) extended = aeth_bytes;
      if (first && last && packets > 1) extended += aeth_bytes;
      break;
    case PacketKind::ack:
    case PacketKind::atomic_response: extended = aeth_bytes; break;
    case PacketKind::datagram:
      extended = deth_bytes + ((h.flags & packet_imm) != 0 ? imm_bytes : 0);
      break;
    default: return {};
  }
  const u64 network =
      h.src_lid != 0 ? lrh_bytes + ((h.flags & packet_grh) != 0 ? ipv6_bytes : 0)
                     : ether_bytes + udp_bytes + (is_ipv4_gid(h.dgid) ? ipv4_bytes : ipv6_bytes);
  return {packets,
          packets * (network + bth_bytes + icrc_bytes) + extended + align_up(h.payload, 4)};
}

PacketTrain packets_of(const PacketHeader &h, const u8 *payload) {
  PacketTrain train;
  if (h.kind == PacketKind::ethernet) {
    train.ethernet = true;
    train.packets.emplace_back(payload, payload + h.payload);
    return train;
  }
  train.ethernet = h.src_lid == 0;
  for (Transport &t : transport_of(h, payload)) {
    t.opcode |= service_bits(h.service);
    const Packet inner = bare(h, t);
    train.packets.push_back(train.ethernet ? on_ethernet(h, inner) : on_infiniband(h, inner));
  }
  return train;
}

}  // namespace softhca
