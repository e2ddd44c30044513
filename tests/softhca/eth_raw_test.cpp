// Raw packet QPs: sending with offloads and segmentation, receiving with what
// completions say.
#include "eth_rig.h"

using namespace softhca;
using namespace softhca::test;

namespace {

constexpr u8 l3_checksum = 0x40, l4_checksum = 0x80, all_checksums = 0xc0;
constexpr u8 resp_send = static_cast<u8>(CqeOpcode::resp_send);
constexpr u8 resp_err = static_cast<u8>(CqeOpcode::resp_err);
constexpr u8 req_err = static_cast<u8>(CqeOpcode::req_err);

u8 header_status(const Completion &c) { return c.raw[28]; }
u8 header_types(const Completion &c) { return c.raw[29]; }

}  // namespace

TEST_CASE("A frame arrives as it was sent and is described", "[eth][raw]") {
  EthRig rig;
  RawQp a(rig), b(rig);
  TestRule rule(b.qp.qp);
  REQUIRE(rule.add() == 0);
  b.post();
  const auto frame = udp_frame();
  const u16 index = a.send(frame);
  rig.step();
  const Completion s = a.cq.expect();
  CHECK(s.opcode() == 0);
  CHECK(s.wqe_counter() == index);
  const Completion r = b.cq.expect();
  CHECK(r.opcode() == resp_send);
  CHECK(r.byte_count() == frame.size());
  CHECK(r.uidx() == b.qp.qp->uidx);
  CHECK(r.qpn() == 0);  // no flow tag
  CHECK(header_status(r) == 7);
  CHECK(header_types(r) == (2 << 4 | 2 << 2));
  CHECK(load_be16(r.raw + 20) ==
        ones_complement_sum(frame.data() + 14, static_cast<u32>(frame.size() - 14)));
  CHECK(r.timestamp() != 0);
  CHECK(b.holds(0, frame));
  a.cq.expect_none();
}

TEST_CASE("Header types and checksum bits follow the frame", "[eth][raw]") {
  EthRig rig;
  RawQp a(rig), b(rig, 32);
  TestRule rule(b.qp.qp);
  REQUIRE(rule.add() == 0);
  b.post(16);
  const auto sent = [&](std::vector<u8> f) {
    a.send(f);
    rig.step();
    a.cq.expect();
    return b.cq.expect();
  };
  auto f = FrameBuilder().ipv4(1, 2, 17).udp(1, 2).payload(30).build();
  f[24] ^= 0xff;  // IPv4 header checksum
  CHECK(header_status(sent(f)) == 5);
  f = FrameBuilder().ipv4(1, 2, 17).udp(1, 2).payload(30).build();
  f.back() ^= 1;
  CHECK(header_status(sent(f)) == 3);
  CHECK(header_types(sent(FrameBuilder().ipv6(1, 2, 6).tcp(1, 2, 3, 0x02).build())) ==
        (1 << 4 | 1 << 2));
  CHECK(header_types(sent(FrameBuilder().ipv4(1, 2, 6).tcp(1, 2, 3, 0x10).build())) ==
        (3 << 4 | 2 << 2));
  CHECK(header_types(sent(FrameBuilder().ipv4(1, 2, 6).tcp(1, 2, 3, 0x10).payload(9).build())) ==
        (4 << 4 | 2 << 2));
  f = FrameBuilder().ipv4(1, 2, 17).udp(1, 2).payload(30).build();
  f[20] = 0x20;  // more fragments
  CHECK(header_types(sent(f)) == (0x80 | 2 << 2));
}

TEST_CASE("Checksums are filled in where the WQE asks for it", "[eth][raw]") {
  EthRig rig;
  RawQp a(rig), b(rig);
  TestRule rule(b.qp.qp);
  REQUIRE(rule.add() == 0);
  b.post(4);
  const FrameBuilder builder =
      FrameBuilder().vlan(5).ipv4(0x0a000001, 0x0a000002, 6).tcp(7, 8, 9, 0x10).payload(77);
  for (const u8 flags : {u8{0}, l3_checksum, l4_checksum, all_checksums}) {
    a.send(builder.raw(), flags);
    rig.step();
    a.cq.expect();
    const Completion r = b.cq.expect();
    CHECK((header_status(r) & 2) == ((flags & l3_checksum) != 0 ? 2 : 0));
    CHECK((header_status(r) & 4) == ((flags & l4_checksum) != 0 ? 4 : 0));
  }
  CHECK(b.holds(3, builder.build()));
}

TEST_CASE("Inline headers and inline data make one frame", "[eth][raw]") {
  EthRig rig;
  RawQp a(rig), b(rig);
  TestRule rule(b.qp.qp);
  REQUIRE(rule.add() == 0);
  b.post(2);
  const auto frame = udp_frame(60);
  const std::vector<u8> header(frame.begin(), frame.begin() + 18);
  a.qp.post(RawQp::wqe(WqeOpcode::send, 0, 0, header)
                .inline_data(frame.data() + 18, static_cast<u32>(frame.size() - 18)));
  std::copy(frame.begin() + 18, frame.end(), a.out.data());
  a.qp.post(RawQp::wqe(WqeOpcode::send, 0, 0, header)
                .data(20, a.out.key(), a.out.address())
                .data(static_cast<u32>(frame.size() - 38), a.out.key(), a.out.address(20)));
  rig.step();
  for (u32 i = 0; i < 2; ++i) {
    CHECK(a.cq.expect().opcode() == 0);
    CHECK(b.cq.expect().byte_count() == frame.size());
    CHECK(b.holds(i, frame));
  }
}

TEST_CASE("The device inserts and strips VLAN tags", "[eth][raw]") {
  EthRig rig;
  RawQp a(rig), plain(rig), stripping(rig);
  stripping.qp.qp->eth->offloads.strip_vlan = true;
  TestRule to_plain(plain.qp.qp), to_stripping(stripping.qp.qp);
  REQUIRE(to_plain.add() == 0);
  REQUIRE(to_stripping.add() == 0);
  plain.post();
  stripping.post();
  const auto untagged = FrameBuilder().ipv4(1, 2, 17).udp(3, 4).payload(50).build();
  const auto tagged = FrameBuilder().vlan(0xac0c).ipv4(1, 2, 17).udp(3, 4).payload(50).build();
  std::copy(untagged.begin(), untagged.end(), a.out.data());
  u8 segment[16] = {};
  store_be16(segment + 12, 0x8000);  // insert a tag
  store_be16(segment + 14, 0xac0c);
  Wqe w(WqeOpcode::send);
  a.qp.post(
      w.raw(segment, 16).data(static_cast<u32>(untagged.size()), a.out.key(), a.out.address()));
  rig.step();
  const Completion p = plain.cq.expect(), s = stripping.cq.expect();
  CHECK(p.byte_count() == tagged.size());
  CHECK((header_types(p) & 1) == 0);
  CHECK(plain.holds(0, tagged));
  CHECK(s.byte_count() == untagged.size());
  CHECK((header_types(s) & 1) == 1);
  CHECK(load_be16(s.raw + 30) == 0xac0c);
  CHECK(stripping.holds(0, untagged));
}

TEST_CASE("The frame check sequence is scattered behind the frame", "[eth][raw]") {
  EthRig rig;
  RawQp a(rig), b(rig);
  b.qp.qp->eth->offloads.scatter_fcs = true;
  TestRule rule(b.qp.qp);
  REQUIRE(rule.add() == 0);
  b.post();
  const auto frame = udp_frame();
  a.send(frame);
  rig.step();
  CHECK(b.cq.expect().byte_count() == frame.size() + 4);
  // The CRC over frame and check sequence is a constant.
  CHECK(frame_check_sequence(b.slot(0), static_cast<u32>(frame.size() + 4)) == 0x2144df1c);
}

TEST_CASE("Short frames are padded, long ones are lost", "[eth][raw]") {
  EthRig rig;
  RawQp a(rig), b(rig);
  TestRule rule(b.qp.qp);
  REQUIRE(rule.add() == 0);
  b.post(2, 64);
  a.send(std::vector<u8>(14, 0xff));
  a.send(std::vector<u8>(max_frame_bytes + 1, 0xff));
  rig.step();
  CHECK(a.cq.expect().opcode() == 0);
  CHECK(a.cq.expect().opcode() == 0);
  CHECK(b.cq.expect().byte_count() == min_frame_bytes);
  b.cq.expect_none();
}

TEST_CASE("What is too long to be sent is not gathered", "[eth][raw]") {
  constexpr u32 gibibyte = 1 << 30;
  EthRig rig;
  RawQp a(rig);
  Region nothing(64, full_access);  // reads would fail
  nothing.mkey().host_base = 0;
  nothing.mkey().length = gibibyte;
  bool lost = false;
  Wqe wqe = RawQp::wqe(WqeOpcode::send);
  SECTION("as one frame") { lost = true; }
  SECTION("cut into segments") {
    wqe = RawQp::wqe(WqeOpcode::tso, 0, 1000, std::vector<u8>(eth_header_bytes, 0xff));
  }
  SECTION("beside other packets") { wqe = RawQp::wqe(WqeOpcode::multi_packet); }
  a.qp.post(wqe.data(gibibyte, nothing.key(), nothing.address()));
  rig.step();
  const Completion c = a.cq.expect();
  CHECK(c.opcode() == static_cast<u8>(lost ? CqeOpcode::req : CqeOpcode::req_err));
  CHECK((lost || c.syndrome() == static_cast<u8>(Syndrome::local_length)));
}

TEST_CASE("A large segment is cut into segments that re-assemble", "[eth][tso]") {
  EthRig rig;
  const bool v6 = GENERATE(false, true);
  RawQp a(rig), b(rig, 64);
  TestRule rule(b.qp.qp);
  REQUIRE(rule.add() == 0);
  b.post(60);
  constexpr u32 mss = 1000, bytes = 50'300, sequence = 0xfffffff0;
  constexpr u8 fin_psh_ack_cwr = 0x99;
  FrameBuilder builder;
  if (v6) builder.ipv6(1, 2, 6);
  else builder.ipv4(1, 2, 6);
  const auto header = builder.tcp(5, 6, sequence, fin_psh_ack_cwr).raw();
  a.out.fill(3);
  a.qp.post(RawQp::wqe(WqeOpcode::tso, all_checksums, mss, header)
                .data(20'000, a.out.key(), a.out.address())
                .data(bytes - 20'000, a.out.key(), a.out.address(20'000)));
  rig.step();
  CHECK(a.cq.expect().sent_opcode() == static_cast<u8>(WqeOpcode::tso));
  const u32 segments = (bytes + mss - 1) / mss;
  for (u32 i = 0; i < segments; ++i) {
    const Completion r = b.cq.expect();
    const u32 part = std::min(mss, bytes - i * mss);
    REQUIRE(r.byte_count() == header.size() + part);
    CHECK(header_status(r) == 7);
    const u8 *f = b.slot(i);
    const EthFrame parsed = parse_frame(f, r.byte_count());
    CHECK(parsed.outer.end == r.byte_count());
    CHECK(load_be32(f + parsed.outer.l4 + 4) == sequence + i * mss);
    if (!v6) CHECK(load_be16(f + 18) == 0x1234 + i);
    const u8 flags = f[parsed.outer.l4 + 13];
    CHECK((flags & 0x09) == (i + 1 == segments ? 0x09 : 0));
    CHECK((flags & 0x80) == (i == 0 ? 0x80 : 0));
    CHECK(std::memcmp(f + header.size(), a.out.data() + i * mss, part) == 0);
  }
  b.cq.expect_none();
}

// Linux's driver segments UDP by the same opcode; programs send their ARP by it, too.
TEST_CASE("A large segment may be something else than TCP", "[eth][tso]") {
  EthRig rig;
  RawQp a(rig), b(rig, 8);
  TestRule rule(b.qp.qp);
  REQUIRE(rule.add() == 0);
  b.post(8);
  a.out.fill(3);
  SECTION("UDP") {
    const auto header = FrameBuilder().ipv4(1, 2, 17).udp(5, 6).raw();
    a.qp.post(RawQp::wqe(WqeOpcode::tso, all_checksums, 1000, header)
                  .data(2300, a.out.key(), a.out.address()));
    rig.step();
    CHECK(a.cq.expect().sent_opcode() == static_cast<u8>(WqeOpcode::tso));
    for (u32 i = 0; i < 3; ++i) {
      const u32 part = i == 2 ? 300 : 1000;
      const Completion r = b.cq.expect();
      REQUIRE(r.byte_count() == header.size() + part);
      CHECK(header_status(r) == 7);
      const u8 *f = b.slot(i);
      CHECK(load_be16(f + header.size() - 4) == 8 + part);
      CHECK(load_be16(f + 18) == 0x1234 + i);
      CHECK(std::memcmp(f + header.size(), a.out.data() + i * 1000, part) == 0);
    }
  }
  SECTION("no IP") {
    std::vector<u8> header(34, 0xff);
    store_be16(&header[12], 0x0806);
    a.qp.post(RawQp::wqe(WqeOpcode::tso, all_checksums, 1000, header)
                  .data(40, a.out.key(), a.out.address()));
    rig.step();
    CHECK(a.cq.expect().sent_opcode() == static_cast<u8>(WqeOpcode::tso));
    REQUIRE(b.cq.expect().byte_count() == 74);
    CHECK(std::memcmp(b.slot(0), header.data(), 34) == 0);
    CHECK(std::memcmp(b.slot(0) + 34, a.out.data(), 40) == 0);
  }
  b.cq.expect_none();
}

TEST_CASE("Several packets in a WQE go out as frames of their own", "[eth][raw]") {
  EthRig rig;
  RawQp a(rig), b(rig, 64);
  TestRule rule(b.qp.qp);
  REQUIRE(rule.add() == 0);
  b.post(8);
  std::vector<std::vector<u8>> frames;
  for (u16 i = 0; i < 3; ++i)
    frames.push_back(FrameBuilder().ipv4(1, 2, 17).udp(5, static_cast<u16>(6 + i)).raw());
  const auto size = static_cast<u32>(frames[0].size());
  for (u32 i = 0; i < 3; ++i) {
    frames[i].resize(size + 40, static_cast<u8>(i));
    std::memcpy(a.out.data() + i * 512, frames[i].data(), frames[i].size());
    std::memcpy(a.out.data() + 4096 + i * frames[i].size(), frames[i].data(), frames[i].size());
  }
  const auto bytes = static_cast<u32>(frames[0].size());
  SECTION("one in each data segment") {
    a.qp.post(RawQp::wqe(WqeOpcode::multi_packet)
                  .data(bytes, a.out.key(), a.out.address())
                  .inline_data(frames[1].data(), bytes)
                  .data(bytes, a.out.key(), a.out.address(1024)));
  }
  SECTION("of one size each, the older way") {
    auto wqe = RawQp::wqe(WqeOpcode::tso, 0, static_cast<u16>(bytes));
    wqe.modifier(1);
    a.qp.post(wqe.data(bytes + 10, a.out.key(), a.out.address(4096))
                  .data(2 * bytes - 10, a.out.key(), a.out.address(4096 + bytes + 10)));
  }
  rig.step();
  a.cq.expect();
  a.cq.expect_none();
  for (u32 i = 0; i < 3; ++i) {
    CHECK(b.cq.expect().byte_count() == bytes);
    CHECK(b.holds(i, frames[i]));
  }
  b.cq.expect_none();
}

TEST_CASE("WQEs that make no frame stop the send queue and no more", "[eth][raw][error]") {
  EthRig rig;
  RawQp a(rig), b(rig);
  TestRule rule(a.qp.qp);
  REQUIRE(rule.add() == 0);
  a.post();
  Syndrome expected = Syndrome::local_qp_op;
  SECTION("TSO with headers that end too early") {
    auto udp = FrameBuilder().ipv4(1, 2, 17).udp(1, 2).raw();
    udp.resize(udp.size() - 4);
    a.qp.post(RawQp::wqe(WqeOpcode::tso, 0, 100, udp).data(500, a.out.key(), a.out.address()));
  }
  SECTION("packets behind an inline header") {
    const auto tcp = FrameBuilder().ipv4(1, 2, 6).tcp(1, 2, 3, 4).raw();
    a.qp.post(
        RawQp::wqe(WqeOpcode::multi_packet, 0, 0, tcp).data(500, a.out.key(), a.out.address()));
  }
  SECTION("no packet at all") { a.qp.post(RawQp::wqe(WqeOpcode::multi_packet)); }
  SECTION("a packet without a header") {
    a.qp.post(RawQp::wqe(WqeOpcode::multi_packet)
                  .data(500, a.out.key(), a.out.address())
                  .data(13, a.out.key(), a.out.address()));
  }
  SECTION("TSO without a segment size") {
    const auto tcp = FrameBuilder().ipv4(1, 2, 6).tcp(1, 2, 3, 4).raw();
    a.qp.post(RawQp::wqe(WqeOpcode::tso, 0, 0, tcp).data(500, a.out.key(), a.out.address()));
  }
  SECTION("More than a large segment may have") {
    const auto tcp = FrameBuilder().ipv4(1, 2, 6).tcp(1, 2, 3, 4).raw();
    a.qp.post(
        RawQp::wqe(WqeOpcode::tso, 0, 1000, tcp).data((1 << 18) + 1, a.out.key(), a.out.address()));
    expected = Syndrome::local_length;
  }
  SECTION("A frame without a whole Ethernet header") { a.send(std::vector<u8>(13)); }
  SECTION("An operation of other transports") {
    a.qp.post(Wqe(WqeOpcode::rdma_write).remote(0, 0));
  }
  SECTION("A key that is not valid") {
    a.qp.post(RawQp::wqe(WqeOpcode::send).data(100, 0xdead00, a.out.address()));
    expected = Syndrome::local_protection;
  }
  rig.step();
  const Completion c = a.cq.expect();
  CHECK(c.opcode() == req_err);
  CHECK(c.syndrome() == static_cast<u8>(expected));
  CHECK(a.qp.qp->state == QpState::sqe);
  // What is posted behind is flushed, and receiving goes on.
  a.send(udp_frame());
  b.send(udp_frame());
  rig.step();
  CHECK(a.cq.expect().syndrome() == static_cast<u8>(Syndrome::flush));
  CHECK(a.cq.expect().opcode() == resp_send);
}

TEST_CASE("Receives that cannot hold their frame", "[eth][raw][error]") {
  EthRig rig;
  RawQp a(rig), b(rig);
  TestRule rule(b.qp.qp);
  REQUIRE(rule.add() == 0);
  // Nothing posted: the link pauses for a while, then the frame is lost.
  a.send(udp_frame());
  rig.step(600'000'000);
  b.cq.expect_none();
  b.post(1, 64);
  b.post(1);
  a.send(udp_frame());
  a.send(udp_frame());
  rig.step();
  const Completion c = b.cq.expect();
  CHECK(c.opcode() == resp_err);
  CHECK(c.syndrome() == static_cast<u8>(Syndrome::local_length));
  CHECK(b.cq.expect().opcode() == resp_send);

  b.qp.post_receive({{2048, 0xdead00, b.buffer.address()}});
  b.post();
  a.send(udp_frame());
  rig.step();
  CHECK(b.cq.expect().syndrome() == static_cast<u8>(Syndrome::local_protection));
  CHECK(b.cq.expect().syndrome() == static_cast<u8>(Syndrome::flush));
  CHECK(b.qp.qp->state == QpState::err);
}

TEST_CASE("A frame waits a moment for a receive, and only once", "[eth][raw]") {
  EthRig rig;
  RawQp a(rig), b(rig);
  TestRule rule(b.qp.qp);
  REQUIRE(rule.add() == 0);
  a.send(udp_frame());
  rig.step();
  b.post();
  rig.step();
  CHECK(b.cq.expect().opcode() == resp_send);
  a.send(udp_frame());
  a.send(udp_frame());
  rig.step(600'000'000);  // both lost after one pause
  b.post();
  rig.step();
  b.cq.expect_none();
  a.send(udp_frame());
  rig.step();
  CHECK(b.cq.expect().wqe_counter() == 1);
}

TEST_CASE("Receiving starts in INIT, sending in RTS", "[eth][raw]") {
  EthRig rig;
  RawQp a(rig), b(rig);
  TestRule rule(b.qp.qp);
  REQUIRE(rule.add() == 0);
  qp_set_state(*b.qp.qp, QpState::reset);
  b.qp.qp->attr.port = 1;
  b.qp.ring_receive(0);
  qp_set_state(*b.qp.qp, QpState::init);
  b.qp.post_receive({{2048, b.buffer.key(), b.buffer.address()}});
  a.send(udp_frame());
  rig.step();
  CHECK(b.cq.expect().opcode() == resp_send);
}

TEST_CASE("A rate limit spaces the frames", "[eth][pacing]") {
  EthRig rig;
  RawQp a(rig), b(rig, 64);
  TestRule rule(b.qp.qp);
  REQUIRE(rule.add() == 0);
  b.post(32);
  a.qp.qp->attr.rate_limit = 8000;  // kbit/s: one byte per microsecond
  a.qp.qp->eth->max_burst_bytes = 1000;
  const auto frame = udp_frame(458);  // 500 bytes
  REQUIRE(frame.size() == 500);
  for (int i = 0; i < 10; ++i) a.send(frame);
  const auto arrived = [&] {
    Completion c;
    u32 n = 0;
    while (b.cq.poll(c)) ++n;
    return n;
  };
  rig.step();
  CHECK(arrived() == 3);  // the burst, and the frame that ends it
  rig.step(2'000'000);
  CHECK(arrived() == 3);  // a pause earns no more than a burst
  rig.step(10'000'000);
  CHECK(arrived() == 3);
}

TEST_CASE("Tunnel offloads describe and complete the inner headers", "[eth][raw]") {
  EthRig rig;
  RawQp a(rig), b(rig), c(rig);
  b.qp.qp->eth->offloads.tunnel = true;
  TestRule to_b(b.qp.qp), to_c(c.qp.qp);
  REQUIRE(to_b.add() == 0);
  REQUIRE(to_c.add() == 0);
  b.post();
  c.post();
  const FrameBuilder tunnel = FrameBuilder()
                                  .ipv6(1, 2, 17)
                                  .udp(9, vxlan_port)
                                  .vxlan(77)
                                  .mac(unicast_mac)
                                  .ipv4(3, 4, 6)
                                  .tcp(1, 2, 3, 0x02)
                                  .payload(40);
  a.send(tunnel.raw(), 0xf0);
  rig.step();
  const Completion inner = b.cq.expect(), outer = c.cq.expect();
  CHECK(inner.raw[0] == 3);  // tunneled, outside is IPv6
  CHECK(header_types(inner) == (1 << 4 | 2 << 2));
  CHECK(header_status(inner) == 7);
  CHECK(outer.raw[0] == 0);
  CHECK(header_types(outer) == (2 << 4 | 1 << 2));
  CHECK(header_status(outer) == 7);
  CHECK(b.holds(0, tunnel.build()));
}

TEST_CASE("Memory copies by work request", "[mmo]") {
  EthRig rig;
  Pair p(rig);
  Region from(300'000, full_access), to(300'000, full_access),
      read_only(300'000, access_remote_read);
  from.fill(5);
  const auto copy = [&](u32 n, const Region &dst, u8 opmod = 1) {
    u8 meta[16] = {};
    p.a.post(Wqe(WqeOpcode::mmo, opmod)
                 .raw(meta, 16)
                 .data(n, from.key(), from.address(3))
                 .data(n, dst.key(), dst.address(5)));
    rig.step();
    return p.a_cq.expect();
  };
  SECTION("Good") {
    const Completion c = copy(200'000, to);
    CHECK(c.opcode() == 0);
    CHECK(c.sent_opcode() == static_cast<u8>(WqeOpcode::mmo));
    CHECK(std::memcmp(from.data() + 3, to.data() + 5, 200'000) == 0);
  }
  SECTION("Destination not writable") {
    CHECK(copy(100, read_only).syndrome() == static_cast<u8>(Syndrome::local_protection));
  }
  SECTION("Beyond the destination") {
    CHECK(copy(299'999, to).syndrome() == static_cast<u8>(Syndrome::local_protection));
  }
  SECTION("Another operation of the engine") {
    CHECK(copy(100, to, 2).syndrome() == static_cast<u8>(Syndrome::local_qp_op));
  }
}

TEST_CASE("Frames are counted by their address, on the way out and in", "[eth]") {
  using enum TrafficKind;
  EthRig rig;
  RawQp a(rig);
  const u8 broadcast_mac[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
  TestRule unicast(a.qp.qp);
  REQUIRE(unicast.dst(unicast_mac).add() == 0);
  a.post(1);
  PortCounters<u64> before = port_counters(0, 1);
  for (const u8 *to : {unicast_mac, unicast_mac, multicast_mac, broadcast_mac}) {
    a.send(udp_frame(100, to));
    rig.step(1'000'000'000);
  }
  PortCounters<u64> after = port_counters(0, 1);
  const auto packets = [&](TrafficKind k) { return after.packets(k) - before.packets(k); };
  const auto octets = [&](TrafficKind k) { return after.octets(k) - before.octets(k); };
  const u64 bytes = udp_frame(100).size();
  CHECK(packets(sent_frames) == 2);
  CHECK(packets(sent_multicast_frames) == 1);
  CHECK(packets(sent_broadcast_frames) == 1);
  CHECK(octets(sent_frames) == 2 * bytes);
  CHECK(octets(sent_broadcast_frames) == bytes);
  CHECK(packets(received_frames) == 2);
  CHECK(octets(received_frames) == 2 * bytes);
  CHECK(packets(received_multicast_frames) == 0);
  CHECK(packets(sent_rdma) == 0);
  // The second had no receive.
  CHECK(after.queues[QueueCounter::out_of_buffer] ==
        before.queues[QueueCounter::out_of_buffer] + 1);
}
