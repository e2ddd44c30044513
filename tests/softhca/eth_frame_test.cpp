// Parsing of frames, checksums, the frame check sequence, the Toeplitz hash.
#include "eth_rig.h"

using namespace softhca;
using namespace softhca::test;

namespace {

EthFrame parse(const std::vector<u8> &b) {
  return parse_frame(b.data(), static_cast<u32>(b.size()));
}

// The key and vectors of Microsoft's RSS verification suite.
constexpr u8 suite_key[toeplitz_key_bytes] = {
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
    0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
    0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};

Rss suite(u32 fields) {
  Rss r;
  std::copy(std::begin(suite_key), std::end(suite_key), r.key.begin());
  r.fields = fields;
  return r;
}

constexpr u32 ip(u32 a, u32 b, u32 c, u32 d) { return a << 24 | b << 16 | c << 8 | d; }

}  // namespace

TEST_CASE("Headers are found behind VLAN tags and extension headers", "[eth]") {
  const auto plain = FrameBuilder().ipv4(1, 2, 6).tcp(10, 20, 0, 0x10).payload(8).build();
  EthFrame f = parse(plain);
  CHECK(f.outer.l3 == 14);
  CHECK(f.outer.l4 == 34);
  CHECK(f.outer.l4_type == L4::tcp);
  CHECK_FALSE(f.outer.cvlan);

  const auto tagged = FrameBuilder().vlan(0xac0c).ipv6(1, 2, 17).udp(10, 20).payload(8).build();
  f = parse(tagged);
  CHECK(f.outer.cvlan);
  CHECK(f.outer.vlan_tci == 0xac0c);
  CHECK(f.outer.ether_type == ethertype_ipv6);
  CHECK(f.outer.l4 == 18 + 40);
  CHECK(f.outer.l4_type == L4::udp);

  // A service tag stands in front of the customer's, or alone; the outermost one is reported.
  for (const bool customer : {true, false}) {
    FrameBuilder b;
    b.vlan(0x3005, ethertype_svlan);
    if (customer) b.vlan(0xac0c);
    f = parse(b.ipv4(1, 2, 6).tcp(10, 20, 0, 0x10).payload(8).build());
    CHECK(f.outer.svlan);
    CHECK(f.outer.cvlan == customer);
    CHECK(f.outer.vlan_tci == 0x3005);
    CHECK(f.outer.ether_type == ethertype_ipv4);
    CHECK(f.outer.l4 == 14u + (customer ? 8 : 4) + 20);
    CHECK(f.outer.l4_type == L4::tcp);
  }

  // Of the fragments the first one has ports, by which it is steered. Its layer 4 is none, since
  // the checksum is not its own.
  auto fragment = plain;
  fragment[20] = 0x20;
  CHECK(parse(fragment).outer.fragment);
  CHECK(parse(fragment).outer.l4_type == L4::none);
  CHECK(parse(fragment).outer.protocol == 6);
  const auto key = [](const auto &frame) { return flow_key(parse(frame)).outer; };
  CHECK(std::memcmp(key(fragment).dst_port, key(plain).dst_port, 2) == 0);
  CHECK(std::memcmp(key(fragment).src_port, key(plain).src_port, 2) == 0);
  CHECK(load_be16(key(plain).dst_port) != 0);
  fragment[21] = 1;  // not the first
  CHECK(parse(fragment).outer.fragment);
  CHECK(load_be16(key(fragment).dst_port) == 0);
  fragment[20] = 0;  // the last
  CHECK(parse(fragment).outer.fragment);
  CHECK(load_be16(key(fragment).dst_port) == 0);
}

TEST_CASE("A tunnel is known by its port alone", "[eth]") {
  for (const u32 flags : {0x08000000u, 0u}) {
    const auto frame = FrameBuilder()
                           .ipv4(1, 2, 17)
                           .udp(1, vxlan_port)
                           .vxlan(21, flags)
                           .mac(unicast_mac)
                           .ipv4(1, 2, 17)
                           .udp(1, 2)
                           .payload(20)
                           .build();
    CHECK(parse(frame).tunnel);
    CHECK(parse(frame).vni == 21);
    CHECK(parse(frame).inner.l4_type == L4::udp);
  }
}

TEST_CASE("A frame cut anywhere parses without reading past its end", "[eth]") {
  const auto whole = FrameBuilder()
                         .ipv4(1, 2, 17)
                         .udp(1, vxlan_port)
                         .vxlan(5)
                         .mac(unicast_mac)
                         .ipv6(1, 2, 6)
                         .tcp(1, 2, 3, 0)
                         .payload(20)
                         .build();
  for (size_t n = eth_header_bytes; n <= whole.size(); ++n) {
    const std::vector<u8> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n));
    const EthFrame f = parse(cut);
    CHECK(f.outer.end <= n);
    CHECK(f.outer.l4 <= n);
    (void)l3_checksum_ok(cut.data(), f.outer);
    (void)l4_checksum_ok(cut.data(), f.outer);
    if (f.tunnel) (void)l4_checksum_ok(cut.data(), f.inner);
  }
  CHECK(parse(whole).tunnel);
  CHECK(parse(whole).vni == 5);
  CHECK(parse(whole).inner.l4_type == L4::tcp);
}

TEST_CASE("Checksums written are checksums accepted", "[eth]") {
  for (const size_t n : {size_t{0}, size_t{1}, size_t{8}, size_t{333}}) {
    for (auto frame :
         {FrameBuilder().ipv4(0x0a000001, 0x0a000002, 17).udp(9, 10).payload(n).build(),
          FrameBuilder().ipv4(0x0a000001, 0x0a000002, 6).tcp(9, 10, 1, 2).payload(n).build(),
          FrameBuilder().ipv6(3, 4, 17).udp(9, 10).payload(n).build()}) {
      CHECK(l3_checksum_ok(frame.data(), parse(frame).outer));
      CHECK(l4_checksum_ok(frame.data(), parse(frame).outer));
      frame[frame.size() - 1] ^= 1;
      CHECK_FALSE(l4_checksum_ok(frame.data(), parse(frame).outer));
    }
  }
  // UDP over IPv4 may do without, over IPv6 it may not.
  CHECK(l4_checksum_ok(FrameBuilder().ipv4(1, 2, 17).udp(1, 2).raw().data(),
                       parse(FrameBuilder().ipv4(1, 2, 17).udp(1, 2).raw()).outer));
  const auto v6 = FrameBuilder().ipv6(1, 2, 17).udp(1, 2).raw();
  CHECK_FALSE(l4_checksum_ok(v6.data(), parse(v6).outer));
}

TEST_CASE("The frame check sequence is the CRC of Ethernet", "[eth]") {
  CHECK(frame_check_sequence(reinterpret_cast<const u8 *>("123456789"), 9) == 0xcbf43926);
}

TEST_CASE("Toeplitz agrees with the published vectors", "[eth][rss]") {
  const auto v4 = FrameBuilder()
                      .ipv4(ip(66, 9, 149, 187), ip(161, 142, 100, 80), 6)
                      .tcp(2794, 1766, 0, 0)
                      .build();
  CHECK(rss_hash(suite(hash_ipv4), parse(v4)).hash == 0x323e8fc2);
  CHECK(rss_hash(suite(hash_ipv4 | hash_tcp), parse(v4)).hash == 0x51ccc178);
  CHECK(rss_hash(suite(hash_ipv4), parse(v4)).type == 0x05);
  CHECK(rss_hash(suite(hash_ipv4 | hash_tcp), parse(v4)).type == 0x55);
  const auto other = FrameBuilder()
                         .ipv4(ip(199, 92, 111, 2), ip(65, 69, 140, 83), 6)
                         .tcp(14230, 4739, 0, 0)
                         .build();
  CHECK(rss_hash(suite(hash_ipv4), parse(other)).hash == 0xd718262a);
  CHECK(rss_hash(suite(hash_ipv4 | hash_tcp), parse(other)).hash == 0xc626b0ea);
}

TEST_CASE("The hash takes the fields asked for and no others", "[eth][rss]") {
  const auto a = FrameBuilder().ipv4(1, 2, 17).udp(100, 200).build();
  const auto b = FrameBuilder().ipv4(9, 2, 17).udp(101, 200).build();
  CHECK(rss_hash(suite(hash_dst_ipv4), parse(a)).hash ==
        rss_hash(suite(hash_dst_ipv4), parse(b)).hash);
  CHECK(rss_hash(suite(hash_src_ipv4), parse(a)).hash !=
        rss_hash(suite(hash_src_ipv4), parse(b)).hash);
  CHECK(rss_hash(suite(hash_ipv4 | hash_dst_udp), parse(a)).type == 0x85);
  // Ports of TCP are not ports of UDP; other IP versions have no hash at all.
  CHECK(rss_hash(suite(hash_ipv4 | hash_tcp), parse(a)).hash ==
        rss_hash(suite(hash_ipv4), parse(a)).hash);
  CHECK(rss_hash(suite(hash_ipv6), parse(a)).hash == 0);
  CHECK(rss_hash(suite(hash_ipv6), parse(a)).type == 0);

  const auto tunnel = FrameBuilder()
                          .ipv4(1, 2, 17)
                          .udp(100, vxlan_port)
                          .vxlan(1)
                          .mac(unicast_mac)
                          .ipv4(7, 8, 17)
                          .udp(1, 2)
                          .build();
  const auto inside = FrameBuilder().ipv4(7, 8, 17).udp(1, 2).build();
  CHECK(rss_hash(suite(hash_ipv4 | hash_inner), parse(tunnel)).hash ==
        rss_hash(suite(hash_ipv4), parse(inside)).hash);
}
