// Flow steering: matching, priorities, replication, defaults, sniffers.
#include "eth_rig.h"
#include "model/flow_table.h"

using namespace softhca;
using namespace softhca::test;

namespace {

struct Receivers {
  explicit Receivers(Rig &r) : rig(r), sender(r), a(r), b(r) {
    a.post(8);
    b.post(8);
  }
  // Which of a and b got the frame.
  std::string send(const std::vector<u8> &frame) {
    sender.send(frame);
    rig.step();
    sender.cq.expect();
    std::string who;
    Completion c;
    while (a.cq.poll(c)) who += "a";
    while (b.cq.poll(c)) who += "b";
    return who;
  }
  Qp *qa() { return a.qp.qp; }
  Qp *qb() { return b.qp.qp; }
  Rig &rig;
  RawQp sender, a, b;
};

}  // namespace

TEST_CASE("Without rules nothing arrives", "[flow]") {
  EthRig rig;
  Receivers r(rig);
  CHECK(r.send(udp_frame()).empty());
}

TEST_CASE("A frame passes each flow table once", "[flow]") {
  EthRig rig;
  Receivers r(rig);
  constexpr size_t levels = 40;
  std::vector<FlowTable> tables(levels);
  std::vector<FlowEntry> entries(levels);
  for (size_t i = 0; i < levels; ++i) {
    tables[i].entries[0] = &entries[i];
    if (i + 1 < levels) entries[i].tables = {&tables[i + 1], &tables[i + 1]};
  }
  entries.back().receivers = {r.qa()};
  flow_set_root(FlowRoot::receive, &tables[0]);
  const auto bytes = udp_frame();
  for (int i = 0; i < 2; ++i) {
    std::vector<FlowDelivery> out;
    steer_by_tables(parse_frame(bytes.data(), static_cast<u32>(bytes.size())), {}, nullptr, out);
    CHECK(out.size() == 1);
  }
  flow_set_root(FlowRoot::receive, nullptr);
}

TEST_CASE("Each field is matched under its mask", "[flow]") {
  EthRig rig;
  Receivers r(rig);
  TestRule rule(r.qa());
  FlowLayerKey &v = rule.rule.value.outer, &m = rule.rule.mask.outer;
  const auto hit =
      FrameBuilder().vlan(0x2003).ipv4(0x0a0b0c0d, 0x01020304, 17).udp(7, 9).payload(20).build();
  auto miss = hit;
  SECTION("destination address") {
    std::memcpy(v.dst_mac, multicast_mac, 6);
    std::memset(m.dst_mac, 0xff, 6);
    miss[5] ^= 1;
  }
  SECTION("part of the source address") {
    std::memcpy(v.src_mac, source_mac, 6);
    m.src_mac[2] = 0xff;
    miss[8] ^= 1;
  }
  SECTION("Ethernet type behind the tag") {
    store_be16(v.ether_type, ethertype_ipv4);
    store_be16(m.ether_type, 0xffff);
    miss = FrameBuilder().vlan(0x2003).ipv6(1, 2, 17).udp(7, 9).build();
  }
  SECTION("VLAN number without priority") {
    store_be16(v.vlan_tci, 0x4003);
    store_be16(m.vlan_tci, 0x0fff);
    v.cvlan = m.cvlan = 1;
    miss = FrameBuilder().ipv4(0x0a0b0c0d, 0x01020304, 17).udp(7, 9).build();
  }
  SECTION("IPv4 network") {
    store_be32(v.src_ip, 0x0a0b0000);
    store_be32(m.src_ip, 0xffff0000);
    miss[18 + 13] ^= 1;
  }
  SECTION("protocol") {
    v.protocol = 17;
    m.protocol = 0xff;
    miss = FrameBuilder().vlan(0x2003).ipv4(0x0a0b0c0d, 0x01020304, 6).tcp(7, 9, 0, 0).build();
  }
  SECTION("ports") {
    store_be16(v.src_port, 7);
    store_be16(m.src_port, 0xffff);
    miss = FrameBuilder().vlan(0x2003).ipv4(0x0a0b0c0d, 0x01020304, 17).udp(8, 9).build();
  }
  REQUIRE(rule.add() == 0);
  CHECK(r.send(hit) == "a");
  CHECK(r.send(miss).empty());
}

TEST_CASE("Tunnels are matched outside and inside", "[flow]") {
  EthRig rig;
  Receivers r(rig);
  TestRule rule(r.qa());
  rule.rule.value.tunnel = rule.rule.mask.tunnel = 1;
  store_be32(rule.rule.value.vni, 77);
  store_be32(rule.rule.mask.vni, 0xffffff);
  std::memcpy(rule.rule.value.inner.dst_mac, unicast_mac, 6);
  std::memset(rule.rule.mask.inner.dst_mac, 0xff, 6);
  REQUIRE(rule.add() == 0);
  const auto tunnel = [](u32 vni, const u8 *mac) {
    return FrameBuilder()
        .ipv4(1, 2, 17)
        .udp(9, vxlan_port)
        .vxlan(vni)
        .mac(mac)
        .ipv4(3, 4, 17)
        .udp(1, 2)
        .build();
  };
  CHECK(r.send(tunnel(77, unicast_mac)) == "a");
  CHECK(r.send(tunnel(78, unicast_mac)).empty());
  CHECK(r.send(tunnel(77, multicast_mac)).empty());
  CHECK(r.send(udp_frame()).empty());
}

TEST_CASE("The lower number of priority wins, whichever came first", "[flow]") {
  EthRig rig;
  Receivers r(rig);
  TestRule low(r.qa(), 3), high(r.qb(), 1);
  REQUIRE(low.dst_port(5678).add() == 0);
  CHECK(r.send(udp_frame()) == "a");
  REQUIRE(high.dst(multicast_mac).dst_port(5678).add() == 0);
  CHECK(r.send(udp_frame()) == "b");
  flow_remove(high.rule);
  CHECK(r.send(udp_frame()) == "a");
}

TEST_CASE("One entry with two destinations replicates", "[flow]") {
  EthRig rig;
  Receivers r(rig);
  TestRule first(r.qa()), second(r.qb()), again(r.qa()), other(r.qb());
  REQUIRE(first.dst_port(5678).add() == 0);
  REQUIRE(second.dst_port(5678).add() == 0);
  REQUIRE(again.dst_port(5678).add() == 0);
  REQUIRE(other.dst_port(99).add() == 0);
  CHECK(r.send(udp_frame()) == "ab");
}

TEST_CASE("Contradicting actions of one entry are refused", "[flow][error]") {
  EthRig rig;
  Receivers r(rig);
  TestRule tagged(r.qa()), other_tag(r.qb()), drop(r.qb()), plain(r.qb());
  tagged.rule.has_tag = other_tag.rule.has_tag = true;
  tagged.rule.tag = 5;
  other_tag.rule.tag = 6;
  drop.rule.drop = true;
  REQUIRE(tagged.dst_port(5678).add() == 0);
  CHECK(other_tag.dst_port(5678).add() == EEXIST);
  CHECK(drop.dst_port(5678).add() == EEXIST);
  CHECK(plain.dst_port(5678).add() == 0);
}

TEST_CASE("Tags arrive in the completion, dropped frames nowhere", "[flow]") {
  EthRig rig;
  Receivers r(rig);
  TestRule tagged(r.qa()), drop(r.qa(), 0), catch_all(r.qb(), 5);
  tagged.rule.has_tag = true;
  tagged.rule.tag = 0xabcdef;
  drop.rule.drop = true;
  REQUIRE(tagged.dst_port(5678).add() == 0);
  REQUIRE(drop.dst_port(99).add() == 0);
  REQUIRE(catch_all.add() == 0);
  r.sender.send(udp_frame());
  rig.step();
  CHECK(r.a.cq.expect().qpn() == 0xabcdef);
  r.sender.cq.expect();
  CHECK(r.send(udp_frame(10, multicast_mac, 99)).empty());
  CHECK(r.send(udp_frame(10, multicast_mac, 98)) == "b");
}

TEST_CASE("Rules that do not trap let the frame pass on", "[flow]") {
  EthRig rig;
  Receivers r(rig);
  TestRule peek(r.qa(), 2), take(r.qb(), 2);
  peek.rule.dont_trap = true;
  REQUIRE(peek.add() == 0);
  REQUIRE(take.dst_port(5678).add() == 0);
  CHECK(r.send(udp_frame()) == "ab");
  CHECK(r.send(udp_frame(10, multicast_mac, 1)) == "a");
}

TEST_CASE("Defaults come last, multicast alone before them", "[flow]") {
  EthRig rig;
  Receivers r(rig);
  TestRule fallback(r.qb()), group(r.qa(), 0), port(r.qb(), 9);
  fallback.rule.kind = FlowKind::leftovers;
  REQUIRE(fallback.add() == 0);
  CHECK(r.send(udp_frame()) == "b");
  REQUIRE(group.dst(multicast_mac).add() == 0);
  CHECK(r.send(udp_frame()) == "a");
  // A rule about nothing but the group is weaker than any other.
  REQUIRE(port.dst_port(5678).add() == 0);
  CHECK(r.send(udp_frame()) == "b");
}

TEST_CASE("Sniffers see all that others take", "[flow]") {
  EthRig rig;
  Receivers r(rig);
  TestRule sniffer(r.qa()), rule(r.qb());
  sniffer.rule.kind = FlowKind::sniffer;
  REQUIRE(sniffer.add() == 0);
  REQUIRE(rule.dst(unicast_mac).add() == 0);
  CHECK(r.send(udp_frame(10, unicast_mac)) == "ab");
  CHECK(r.send(udp_frame()) == "a");
}

TEST_CASE("Unicast comes back only to addresses of this host", "[flow]") {
  EthRig rig;
  Receivers r(rig);
  TestRule any(r.qa(), 1), named(r.qb(), 2);
  REQUIRE(any.add() == 0);
  CHECK(r.send(udp_frame(10, unicast_mac)).empty());
  REQUIRE(named.dst(unicast_mac).add() == 0);
  CHECK(r.send(udp_frame(10, unicast_mac)) == "b");
  CHECK(r.send(udp_frame(10, multicast_mac)) == "a");
  r.qa()->block_multicast_loopback = true;
  CHECK(r.send(udp_frame(10, multicast_mac)).empty());
}
