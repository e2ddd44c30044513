// Packets as records: what packets.h makes comes back, what is damaged does not.
#include "model/unpack.h"

#include <random>

#include "base/prm.h"
#include "model/bth.h"
#include "model/packets.h"
#include "rig.h"

using namespace softhca;

namespace {

constexpr u8 v4_from[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 1, 1};
constexpr u8 v4_to[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 1, 7};
constexpr u8 v6_from[16] = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 3, 4, 5, 6, 7, 8, 9};
constexpr u8 v6_to[16] = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 3, 4, 5, 6, 7, 8, 0x10};
constexpr u8 only = packet_first | packet_last;

const std::vector<u8> data = [] {
  std::vector<u8> d(burst_bytes);
  for (size_t i = 0; i < d.size(); ++i) d[i] = static_cast<u8>(i * 7 + (i >> 8));
  return d;
}();

// What a socket shows of an encoded packet, which has to stay where it is.
RoceDatagram shown(const Packet &p) {
  RoceDatagram d;
  const bool ipv4 = p[ether_bytes] >> 4 == 4;
  const u32 udp = ether_bytes + (ipv4 ? ipv4_bytes : ipv6_bytes);
  if (ipv4) {
    std::memcpy(d.sgid, v4_from, 12);
    std::memcpy(d.dgid, v4_to, 12);
    std::memcpy(d.sgid + 12, p.data() + ether_bytes + 12, 4);
    std::memcpy(d.dgid + 12, p.data() + ether_bytes + 16, 4);
    d.traffic_class = p[ether_bytes + 1];
    d.hop_limit = p[ether_bytes + 8];
  } else {
    std::memcpy(d.sgid, p.data() + ether_bytes + 8, 16);
    std::memcpy(d.dgid, p.data() + ether_bytes + 24, 16);
    d.traffic_class = static_cast<u8>(load_be16(p.data() + ether_bytes) >> 4);
    d.hop_limit = p[ether_bytes + 7];
  }
  d.source_port = load_be16(p.data() + udp);
  d.bytes = p.data() + udp + udp_bytes;
  d.size = static_cast<u32>(p.size()) - udp - udp_bytes;
  return d;
}

PacketHeader record(PacketKind kind, Service service, WqeOpcode op, u32 payload, u8 flags,
                    bool ipv6 = false) {
  PacketHeader h{};
  h.kind = kind;
  h.service = service;
  h.opcode = static_cast<u8>(op);
  h.flags = flags | packet_grh;
  h.dst_qpn = 0x10002;
  h.psn = 0xffffff;
  h.npsn = 1;
  h.payload = payload;
  h.traffic_class = 0x20;
  h.hop_limit = 3;
  h.udp_sport = 0xc123;
  std::memcpy(h.sgid, ipv6 ? v6_from : v4_from, 16);
  std::memcpy(h.dgid, ipv6 ? v6_to : v4_to, 16);
  return h;
}

// Every record that one packet holds, its payload in `data`.
std::vector<PacketHeader> every_record() {
  std::vector<PacketHeader> all;
  const auto request = [&all](Service s, WqeOpcode op, u32 payload, u8 flags, bool ipv6) {
    PacketHeader h = record(PacketKind::request, s, op, payload, flags, ipv6);
    if (s == Service::xrc) h.xrc_srqn = 0x123456;
    const bool write = op == WqeOpcode::rdma_write || op == WqeOpcode::rdma_write_imm;
    const bool atomic = op == WqeOpcode::atomic_cs || op == WqeOpcode::atomic_fa;
    if ((write && (flags & packet_first) != 0) || op == WqeOpcode::rdma_read || atomic) {
      h.remote_address = 0x1122334455667788;
      h.rkey = 0xa1b2c3d4;
      h.message_bytes = 123456;
    }
    if (!write && !atomic && op != WqeOpcode::rdma_read && (flags & packet_first) != 0)
      h.message_bytes = (flags & packet_last) != 0 ? payload : unknown_length;
    if (atomic) h.message_bytes = h.atomic_size = 8;
    if ((flags & (packet_imm | packet_inv)) != 0) h.imm = 0x01020304;
    all.push_back(h);
  };
  for (const bool ipv6 : {false, true}) {
    for (const Service s : {Service::rc, Service::uc, Service::xrc}) {
      for (const auto &[op, imm] : {std::pair{WqeOpcode::send, WqeOpcode::send_imm},
                                    std::pair{WqeOpcode::rdma_write, WqeOpcode::rdma_write_imm}}) {
        request(s, op, 1024, packet_first, ipv6);
        request(s, op, 1024, 0, ipv6);
        if (s != Service::uc) request(s, op, 512, packet_ack_request, ipv6);
        for (const u32 bytes : {1u, 2u, 3u, 4096u}) {
          request(s, op, bytes, packet_last | packet_solicited, ipv6);
          request(s, imm, bytes, packet_last | packet_imm, ipv6);
        }
        for (const u32 bytes : {0u, 1u, 4095u, 4096u}) {
          request(s, op, bytes, only, ipv6);
          request(s, imm, bytes, only | packet_imm | packet_solicited, ipv6);
        }
      }
      if (s == Service::uc) continue;
      request(s, WqeOpcode::send_inv, 100, packet_last | packet_inv, ipv6);
      request(s, WqeOpcode::send_inv, 101, only | packet_inv, ipv6);
      request(s, WqeOpcode::rdma_read, 0, only, ipv6);
      request(s, WqeOpcode::atomic_cs, 16, only, ipv6);
      request(s, WqeOpcode::atomic_fa, 16, only, ipv6);
    }
    for (const Service s : {Service::rc, Service::xrc}) {
      const auto answer = [&](PacketKind kind, u32 payload, u8 flags, bool sequence) {
        PacketHeader h = record(kind, s, WqeOpcode::nop, payload, flags, ipv6);
        if (sequence) h.message_bytes = 0xabcdef;
        all.push_back(h);
      };
      answer(PacketKind::read_response, 1024, packet_first, true);
      answer(PacketKind::read_response, 1024, 0, false);
      answer(PacketKind::read_response, 17, packet_last, true);
      answer(PacketKind::read_response, 0, only, true);
      answer(PacketKind::read_response, 4096, only, true);
      answer(PacketKind::atomic_response, 8, 0, true);
      for (const Nak nak : {Nak::none, Nak::rnr, Nak::sequence, Nak::invalid_request,
                            Nak::remote_access, Nak::remote_operation}) {
        answer(PacketKind::ack, 0, 0, true);
        all.back().nak = nak;
        if (nak == Nak::rnr) all.back().timer = 13;
      }
    }
    for (const bool imm : {false, true})
      for (const u32 bytes : {0u, 5u, 4096u}) {
        const u8 flags = imm ? only | packet_imm | packet_solicited : only;
        PacketHeader h = record(PacketKind::datagram, Service::ud,
                                imm ? WqeOpcode::send_imm : WqeOpcode::send, bytes, flags, ipv6);
        h.message_bytes = bytes;
        h.key = 0x11111111;
        h.src_qpn = 0x8001;
        if (imm) h.imm = 0x55667788;
        all.push_back(h);
      }
  }
  return all;
}

Packet encoded(const PacketHeader &h) {
  const PacketTrain t = packets_of(h, data.data());
  REQUIRE(t.packets.size() == 1);
  return t.packets[0];
}

// The packet with the right ICRC for what it says now.
void sign(Packet &p) {
  p.resize(p.size() - icrc_bytes);
  const u32 crc = invariant_crc(p, true);
  for (int i = 0; i < 4; ++i) p.push_back(static_cast<u8>(crc >> 8 * i));
}

bool taken(const Packet &p) {
  Arrival a;
  return unpack(shown(p), a);
}

constexpr u32 to_bth = ether_bytes + ipv4_bytes + udp_bytes;

}  // namespace

TEST_CASE("What is sent as a packet comes back as the same record", "[unpack]") {
  for (const PacketHeader &h : every_record()) {
    const Packet p = encoded(h);
    const RoceDatagram d = shown(p);
    INFO("kind " << int(h.kind) << " service " << int(h.service) << " opcode " << int(h.opcode)
                 << " flags " << int(h.flags) << " payload " << h.payload);
    CHECK(icrc_holds(d));
    Arrival a;
    REQUIRE(unpack(d, a));
    CHECK(std::memcmp(&a.header, &h, sizeof h) == 0);
    REQUIRE(a.header.payload == h.payload);
    CHECK((h.payload == 0 || std::memcmp(a.payload, data.data(), h.payload) == 0));
  }
}

TEST_CASE("A burst comes back as one record for each of its packets", "[unpack]") {
  PacketHeader h = record(PacketKind::request, Service::rc, WqeOpcode::rdma_write_imm, 2500,
                          only | packet_imm | packet_solicited);
  h.npsn = 3;
  h.message_bytes = 2500;
  h.imm = 7;
  const PacketTrain t = packets_of(h, data.data());
  REQUIRE(t.packets.size() == 3);
  u32 offset = 0;
  for (u32 i = 0; i < 3; ++i) {
    Arrival a;
    REQUIRE(unpack(shown(t.packets[i]), a));
    CHECK(a.header.psn == psn_add(h.psn, i));
    CHECK(((a.header.flags & packet_first) != 0) == (i == 0));
    CHECK(((a.header.flags & packet_last) != 0) == (i == 2));
    CHECK(((a.header.flags & packet_imm) != 0) == (i == 2));
    CHECK(a.header.message_bytes == (i == 0 ? 2500 : 0));
    CHECK(std::memcmp(a.payload, data.data() + offset, a.header.payload) == 0);
    offset += a.header.payload;
  }
  CHECK(offset == 2500);
}

TEST_CASE("The ICRC finds damage, and leaves the identification open", "[unpack]") {
  std::mt19937 random(1);
  for (const PacketHeader &h : every_record()) {
    Packet p = encoded(h);
    const RoceDatagram d = shown(p);
    const bool ipv4 = p[ether_bytes] >> 4 == 4;
    // Neither of these stays on the way.
    p[ether_bytes + (ipv4 ? 1 : 3)] ^= 0xff;
    p[ether_bytes + (ipv4 ? 8 : 7)] ^= 0xff;
    const u32 transport = static_cast<u32>(p.size()) - d.size;
    p[transport + 4] ^= 0xff;
    CHECK(icrc_holds(shown(p)));
    for (int i = 0; i < 4; ++i) {
      const size_t bit = random() % (8 * d.size);
      if (bit / 8 == 4) continue;
      Packet damaged = p;
      damaged[transport + bit / 8] ^= static_cast<u8>(1 << bit % 8);
      CHECK_FALSE(icrc_holds(shown(damaged)));
    }
    RoceDatagram other = shown(p);
    other.sgid[15] ^= 1;
    CHECK_FALSE(icrc_holds(other));
    other = shown(p);
    other.source_port ^= 1;
    CHECK_FALSE(icrc_holds(other));
    if (!ipv4) continue;
    // Linux numbers packets here and there, and a socket does not show it.
    store_be16(p.data() + ether_bytes + 4, static_cast<u16>(random()));
    sign(p);
    CHECK(icrc_holds(shown(p)));
    p[transport] ^= 1;
    CHECK_FALSE(icrc_holds(shown(p)));
  }
}

TEST_CASE("Packets that no queue pair takes are refused", "[unpack]") {
  const auto base = record(PacketKind::request, Service::rc, WqeOpcode::send, 64, only);
  const Packet good = encoded(base);
  REQUIRE(taken(good));
  const auto with = [&good](u32 at, u8 value) {
    Packet p = good;
    p[to_bth + at] = value;
    return p;
  };
  CHECK_FALSE(taken(with(1, good[to_bth + 1] | 1)));   // another version
  CHECK_FALSE(taken(with(2, 0x12)));                   // a partition that is not ours
  CHECK(taken(with(2, 0x7f)));                         // its limited member
  CHECK_FALSE(taken(with(0, 0x40 | bth::send_only)));  // reliable datagrams
  CHECK_FALSE(taken(with(0, 0xc0 | bth::send_only)));  // a vendor's own
  CHECK_FALSE(taken(with(0, 0x80)));                   // congestion notifications
  CHECK_FALSE(taken(with(0, 21)));
  CHECK_FALSE(taken(with(0, 31)));
  for (const u8 op :
       {bth::read_request, bth::read_only, bth::acknowledge, bth::compare_swap, bth::fetch_add,
        bth::send_only_inv, bth::send_last_inv, bth::atomic_acknowledge})
    CHECK_FALSE(taken(with(0, bth::uc | op)));
  for (u8 op = 0; op < 32; ++op)
    CHECK(taken(with(0, bth::ud | op)) == (op == bth::send_only || op == bth::send_only_imm));
  Packet empty = encoded(record(PacketKind::request, Service::rc, WqeOpcode::send, 0, only));
  REQUIRE(taken(empty));
  empty[to_bth + 1] |= 0x10;  // padding of nothing
  CHECK_FALSE(taken(empty));
  for (const u8 op : {bth::send_first, bth::send_middle, bth::write_middle, bth::read_middle}) {
    CHECK(taken(with(0, op)));
    Packet padded = with(0, op);
    padded[to_bth + 1] |= 0x10;
    CHECK_FALSE(taken(padded));
  }
  for (const u8 syndrome : {0x40, 0x5f, 0x64, 0x7f, 0x80, 0xff}) {
    Packet p = encoded(record(PacketKind::ack, Service::rc, WqeOpcode::nop, 0, 0));
    REQUIRE(taken(p));
    p[to_bth + bth_bytes] = syndrome;
    CHECK_FALSE(taken(p));
  }
}

TEST_CASE("Packets cut short or too long are refused", "[unpack]") {
  for (const PacketHeader &h : every_record()) {
    const Packet p = encoded(h);
    RoceDatagram d = shown(p);
    const u32 whole = d.size;
    const u32 payload = h.kind == PacketKind::request && h.atomic_size != 0 ? 0
                        : h.kind == PacketKind::atomic_response             ? 0
                                                                : (h.payload + 3) / 4 * 4;
    Arrival a;
    for (d.size = 0; d.size < whole - payload; ++d.size) {
      INFO(d.size << " of " << whole << ", opcode " << int(d.bytes[0]));
      CHECK_FALSE(unpack(d, a));
    }
    Packet longer = p;
    longer.resize(p.size() + 4100);
    d = shown(longer);
    CHECK_FALSE(unpack(d, a));
    d.size = whole + 1;
    CHECK_FALSE(unpack(d, a));
  }
}

// Run with a sanitizer this finds what reads too far.
TEST_CASE("Fuzzed packets stay within themselves", "[unpack][fuzz]") {
  std::mt19937 random(7);
  const auto all = every_record();
  for (int round = 0; round < 20000; ++round) {
    const Packet p = encoded(all[random() % all.size()]);
    const RoceDatagram whole = shown(p);
    // A copy of its own size: behind it there is nothing.
    std::vector<u8> bytes(whole.bytes, whole.bytes + random() % (whole.size + 1));
    for (u32 n = random() % 4; n != 0 && !bytes.empty(); --n)
      bytes[random() % std::min<size_t>(bytes.size(), 32)] = static_cast<u8>(random());
    RoceDatagram d = whole;
    d.bytes = bytes.data();
    d.size = static_cast<u32>(bytes.size());
    (void)icrc_holds(d);
    Arrival a;
    if (!unpack(d, a)) continue;
    REQUIRE(a.header.payload <= max_mtu_bytes);
    if (a.header.payload == 0 || a.payload == a.value) continue;
    REQUIRE(a.payload >= d.bytes);
    REQUIRE(a.payload + a.header.payload + icrc_bytes <= d.bytes + d.size);
  }
}
