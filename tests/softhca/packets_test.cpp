// Records as packets: headers, sequence numbers, CRCs; and the file of them.
#include "model/packets.h"

#include <fstream>

#include "base/prm.h"
#include "config/identity.h"
#include "rig.h"

using namespace softhca;
using namespace softhca::test;

namespace {

constexpr u32 eth = 14, ip = 20, udp = 8, bth = 12, icrc = 4;
constexpr u32 to_bth = eth + ip + udp;

PacketHeader request(WqeOpcode op, u32 payload, u32 npsn, u8 flags) {
  PacketHeader h{};
  h.kind = PacketKind::request;
  h.service = Service::rc;
  h.opcode = static_cast<u8>(op);
  h.flags = flags;
  h.src_qpn = 0x8001;
  h.dst_qpn = 0x10002;
  h.psn = 0xfffffe;
  h.npsn = npsn;
  h.payload = h.message_bytes = payload;
  h.remote_address = 0x1122334455667788;
  h.rkey = 0xa1b2c3d4;
  const u8 from[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 1, 1};
  const u8 to[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 1, 7};
  std::memcpy(h.sgid, from, 16);
  std::memcpy(h.dgid, to, 16);
  return h;
}

u32 psn_of(const Packet &p, u32 at = to_bth) { return load_be32(p.data() + at + 8) & 0xffffff; }
u32 stored_crc(const Packet &p, u32 behind = 0) {
  u32 v;
  std::memcpy(&v, p.data() + p.size() - behind - 4, 4);
  return v;
}
// Of 16-bit words, carries added: 0xffff where a checksum of Internet protocols is right.
u32 folded(const Packet &p, size_t from, size_t to, u32 sum = 0) {
  for (size_t i = from; i < to; i += 2) sum += load_be16(p.data() + i);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return sum;
}
Packet without(const Packet &p, size_t bytes) {
  return {p.begin(), p.end() - static_cast<long>(bytes)};
}

const std::vector<u8> data = [] {
  std::vector<u8> d(burst_bytes);
  for (size_t i = 0; i < d.size(); ++i) d[i] = static_cast<u8>(i * 7);
  return d;
}();

}  // namespace

TEST_CASE("The invariant CRC is that of a packet captured on ConnectX-4 Lx", "[packets]") {
  // A congestion notification; its last four bytes are the CRC.
  const Packet captured = {
      0xe4, 0x1d, 0x2d, 0xab, 0x2b, 0xc2, 0x7c, 0xfe, 0x90, 0x64, 0x3b, 0x32, 0x08, 0x00, 0x45,
      0xc2, 0x00, 0x3c, 0x71, 0x8c, 0x40, 0x00, 0x40, 0x11, 0x91, 0x61, 0x0a, 0x00, 0x11, 0x01,
      0x0a, 0x00, 0x12, 0x01, 0x00, 0x00, 0x12, 0xb7, 0x00, 0x28, 0x00, 0x00, 0x81, 0x00, 0xff,
      0xff, 0x40, 0x00, 0x01, 0x18, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
      0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x82, 0xfd, 0x00, 0x2a};
  CHECK(invariant_crc(without(captured, 4), true) == stored_crc(captured));
}

TEST_CASE("A message becomes packets of the path MTU", "[packets]") {
  const auto h = request(WqeOpcode::rdma_write_imm, 2500, 3,
                         packet_first | packet_last | packet_imm | packet_solicited);
  const PacketTrain t = packets_of(h, data.data());
  CHECK(t.ethernet);
  REQUIRE(t.packets.size() == 3);
  const u8 opcodes[] = {6, 7, 9};  // WRITE first, middle, last with immediate
  const u32 extended[] = {16, 0, 4}, bytes[] = {1024, 1024, 452};
  u32 offset = 0;
  for (u32 i = 0; i < 3; ++i) {
    const Packet &p = t.packets[i];
    REQUIRE(p.size() == to_bth + bth + extended[i] + bytes[i] + icrc);
    CHECK(p[to_bth] == opcodes[i]);
    CHECK(psn_of(p) == psn_add(0xfffffe, i));
    CHECK((load_be32(p.data() + to_bth + 4) & 0xffffff) == 0x10002);
    CHECK(std::memcmp(p.data() + to_bth + bth + extended[i], data.data() + offset, bytes[i]) == 0);
    CHECK(invariant_crc(without(p, 4), true) == stored_crc(p));
    CHECK(load_be16(p.data() + eth + 2) == p.size() - eth);
    CHECK(folded(p, eth, eth + ip) == 0xffff);
    CHECK(load_be16(p.data() + eth + ip + 2) == 4791);
    CHECK(load_be16(p.data() + eth + ip + 4) == p.size() - eth - ip);
    CHECK((p[to_bth + 1] >> 7) == (i == 2));  // solicited event
    CHECK((p[to_bth + 8] >> 7) == (i == 2));  // acknowledge request
    offset += bytes[i];
  }
  const u8 *reth = t.packets[0].data() + to_bth + bth;
  CHECK(load_be64(reth) == h.remote_address);
  CHECK(load_be32(reth + 8) == h.rkey);
  CHECK(load_be32(reth + 12) == 2500);
  const std::array<u8, 6> to = {0x02, 0x53, 0x48, 7, 0, 1};
  CHECK(std::equal(to.begin(), to.end(), t.packets[0].begin()));
}

TEST_CASE("Between addresses of IPv6 a packet has a checksum of UDP", "[packets]") {
  constexpr u32 ip6 = 40;
  auto h = request(WqeOpcode::send, 100, 1, packet_first | packet_last);
  h.sgid[0] = h.dgid[0] = 0xfd;
  const PacketTrain t = packets_of(h, data.data());
  REQUIRE(t.packets.size() == 1);
  const Packet &p = t.packets[0];
  REQUIRE(p.size() == eth + ip6 + udp + bth + 100 + icrc);
  CHECK(load_be16(p.data() + eth + ip6 + 6) != 0);
  // The pseudo header: addresses, protocol, length.
  CHECK(folded(p, eth + 8, p.size(), 17 + load_be16(p.data() + eth + 4)) == 0xffff);
}

TEST_CASE("Payload is padded to words, and the pad count says so", "[packets]") {
  for (u32 bytes : {0u, 1u, 2u, 3u, 4u, 5u}) {
    const auto t =
        packets_of(request(WqeOpcode::send, bytes, 1, packet_first | packet_last), data.data());
    REQUIRE(t.packets.size() == 1);
    const Packet &p = t.packets[0];
    const u32 pad = p[to_bth + 1] >> 4 & 3;
    CHECK(p[to_bth] == 4);  // SEND only
    CHECK(p.size() == to_bth + bth + bytes + pad + icrc);
    CHECK((bytes + pad) % 4 == 0);
  }
}

TEST_CASE("A burst in the middle of a message has neither end", "[packets]") {
  auto h = request(WqeOpcode::send, 8192, 2, 0);
  auto t = packets_of(h, data.data());
  REQUIRE(t.packets.size() == 2);
  for (const Packet &p : t.packets) CHECK(p[to_bth] == 1);
  h.flags = packet_last | packet_inv;
  h.imm = 0x01020304;
  t = packets_of(h, data.data());
  CHECK(t.packets[0][to_bth] == 1);
  CHECK(t.packets[1][to_bth] == 22);  // SEND last with invalidate
  CHECK(load_be32(t.packets[1].data() + to_bth + bth) == 0x01020304);
}

TEST_CASE("Native InfiniBand has a local route header and two CRCs", "[packets]") {
  for (const bool global : {false, true}) {
    auto h = request(WqeOpcode::send, 100, 1,
                     static_cast<u8>(packet_first | packet_last | (global ? packet_grh : 0)));
    h.src_lid = 0x11;
    h.dst_lid = 0x22;
    h.sl = 3;
    const PacketTrain t = packets_of(h, data.data());
    CHECK_FALSE(t.ethernet);
    REQUIRE(t.packets.size() == 1);
    const Packet &p = t.packets[0];
    const u32 at = 8 + (global ? 40 : 0);
    REQUIRE(p.size() == at + bth + 100 + icrc + 2);
    CHECK(p[1] == (3 << 4 | (global ? 3 : 2)));
    CHECK(load_be16(p.data() + 2) == 0x22);
    CHECK(load_be16(p.data() + 4) == (p.size() - 2) / 4);
    CHECK(load_be16(p.data() + 6) == 0x11);
    CHECK(psn_of(p, at) == 0xfffffe);
    CHECK(invariant_crc(without(p, 6), false) == stored_crc(p, 2));
    u16 vcrc;
    std::memcpy(&vcrc, p.data() + p.size() - 2, 2);
    CHECK(variant_crc(without(p, 2)) == vcrc);
    // Switches change the lane and, with a GRH, the hop limit: not this CRC.
    Packet elsewhere = without(p, 6);
    elsewhere[0] |= 0x70;
    if (global) elsewhere[8 + 7] = 1;
    CHECK(invariant_crc(elsewhere, false) == stored_crc(p, 2));
    elsewhere[4] ^= 1;
    CHECK(invariant_crc(elsewhere, false) != stored_crc(p, 2));
  }
}

TEST_CASE("Answers carry an AETH that says what they mean", "[packets]") {
  auto h = request(WqeOpcode::nop, 0, 0, 0);
  h.kind = PacketKind::ack;
  h.message_bytes = 0x123456;
  h.timer = 9;
  const std::pair<Nak, u8> cases[] = {{Nak::none, 0x1f},          {Nak::rnr, 0x29},
                                      {Nak::sequence, 0x60},      {Nak::invalid_request, 0x61},
                                      {Nak::remote_access, 0x62}, {Nak::remote_operation, 0x63}};
  for (const auto &[nak, syndrome] : cases) {
    h.nak = nak;
    const auto t = packets_of(h, nullptr);
    REQUIRE(t.packets.size() == 1);
    CHECK(t.packets[0][to_bth] == 17);
    CHECK(load_be32(t.packets[0].data() + to_bth + bth) == (u32{syndrome} << 24 | 0x123456));
  }
}

TEST_CASE("What has no public form is left out, frames are what they are", "[packets]") {
  auto h = request(WqeOpcode::masked_cs, 32, 1, packet_first | packet_last);
  CHECK(packets_of(h, data.data()).packets.empty());
  h.kind = PacketKind::cm;
  CHECK(packets_of(h, data.data()).packets.empty());
  h.kind = PacketKind::ethernet;
  h.payload = 64;
  const auto t = packets_of(h, data.data());
  REQUIRE(t.packets.size() == 1);
  CHECK(t.packets[0] == Packet(data.begin(), data.begin() + 64));
}

TEST_CASE("Responses to a READ number their packets", "[packets]") {
  auto h = request(WqeOpcode::nop, 8192, 2, packet_first);
  h.kind = PacketKind::read_response;
  auto t = packets_of(h, data.data());
  REQUIRE(t.packets.size() == 2);
  CHECK(t.packets[0][to_bth] == 13);
  CHECK(t.packets[1][to_bth] == 14);
  h.flags = packet_last;
  h.npsn = 1;
  h.payload = 10;
  t = packets_of(h, data.data());
  REQUIRE(t.packets.size() == 1);
  CHECK(t.packets[0][to_bth] == 15);
  CHECK(load_be32(t.packets[0].data() + to_bth + bth) >> 24 == 0x1f);
}
