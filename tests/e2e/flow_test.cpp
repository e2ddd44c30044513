// Flow steering: every attribute and specification, priorities, actions, and what
// is refused.
#include "ethernet_rig.h"

namespace {

using frames::Builder;
using frames::Bytes;
using frames::tcp;
using frames::udp;

ibv_exp_flow_spec_ipv4 ipv4(std::uint32_t src, std::uint32_t dst) {
  ibv_exp_flow_spec_ipv4 s{};
  s.val = {htobe32(src), htobe32(dst)};
  s.mask = {src != 0 ? ~0u : 0, dst != 0 ? ~0u : 0};
  return s;
}

ibv_exp_flow_spec_ipv6 ipv6(std::uint8_t src, std::uint8_t dst) {
  ibv_exp_flow_spec_ipv6 s{};
  s.val.src_ip[0] = s.val.dst_ip[0] = 0xfd;
  s.val.src_ip[15] = src;
  s.val.dst_ip[15] = dst;
  std::memset(&s.mask, 0xff, sizeof(s.mask));
  return s;
}

ibv_exp_flow_spec_tcp_udp ports(std::uint16_t src, std::uint16_t dst) {
  ibv_exp_flow_spec_tcp_udp s{};
  s.val = {htobe16(dst), htobe16(src)};
  s.mask = {static_cast<std::uint16_t>(dst != 0 ? 0xffff : 0),
            static_cast<std::uint16_t>(src != 0 ? 0xffff : 0)};
  return s;
}

struct FlowRig : Rig {
  RawSender sender;
  RawQueue receiver{*this};

  // Of two frames that differ in one field only the second gets through.
  void selects(RuleAttr attr, const Bytes &other, const Bytes &wanted) {
    const Rule rule = receiver.rule(std::move(attr));
    receiver.post();
    sender.send(other);
    sender.send(wanted);
    receiver.expect(wanted);
    CHECK(receiver.empty());
  }
  void refused(RuleAttr attr, int reason) {
    errno = 0;
    CHECK(ibv_exp_create_flow(receiver.qp.get(), &attr.attr()) == nullptr);
    CHECK(errno == reason);
  }
};

}  // namespace

TEST_CASE("rules about Ethernet headers [row:IBV_EXP_FLOW_SPEC_ETH]") {
  FlowRig rig;
  rig.selects(RuleAttr().dst(frames::ours), udp_frame(1, 50, frames::theirs), udp_frame(1, 50));

  ibv_exp_flow_spec_eth eth{};
  std::memcpy(eth.val.dst_mac, frames::ours, 6);
  std::memset(eth.mask.dst_mac, 0xff, 6);
  std::memcpy(eth.val.src_mac, frames::theirs, 6);
  std::memset(eth.mask.src_mac, 0xff, 6);
  rig.selects(RuleAttr().add(eth, IBV_EXP_FLOW_SPEC_ETH),
              Builder(frames::ours, frames::ours).ipv4(1, 2, udp).udp(1, 2).payload(60).build(),
              udp_frame());
  std::memset(eth.mask.src_mac, 0, 6);
  std::memset(eth.val.src_mac, 0, 6);
  eth.val.ether_type = htobe16(0x86dd);
  eth.mask.ether_type = 0xffff;
  rig.selects(RuleAttr().add(eth, IBV_EXP_FLOW_SPEC_ETH), udp_frame(),
              Builder().ipv6(1, 2, udp).udp(1, 2).payload(60).build());
  // A value that is not compared is none.
  eth.mask.ether_type = 0;
  rig.refused(RuleAttr().add(eth, IBV_EXP_FLOW_SPEC_ETH), EINVAL);
  eth.val.ether_type = 0;
  eth.val.vlan_tag = htobe16(5);
  eth.mask.vlan_tag = htobe16(0xfff);
  rig.selects(RuleAttr().add(eth, IBV_EXP_FLOW_SPEC_ETH),
              Builder().vlan(6).ipv4(1, 2, udp).udp(1, 2).payload(60).build(),
              Builder().vlan(5).ipv4(1, 2, udp).udp(1, 2).payload(60).build());
}

TEST_CASE("rules about IPv4 headers [row:IBV_EXP_FLOW_SPEC_IPV4]") {
  FlowRig rig;
  const auto frame = [](std::uint32_t src, std::uint32_t dst, std::uint8_t tos = 0) {
    return Builder().ipv4(src, dst, udp, tos).udp(1, 2).payload(60).build();
  };
  const auto base = [] { return RuleAttr().dst(frames::ours); };
  rig.selects(base().add(ipv4(0, 7), IBV_EXP_FLOW_SPEC_IPV4), frame(1, 8), frame(1, 7));
  rig.selects(base().add(ipv4(5, 7), IBV_EXP_FLOW_SPEC_IPV4), frame(6, 7), frame(5, 7));
  // [row:IBV_EXP_FLOW_SPEC_IPV4_EXT]
  ibv_exp_flow_spec_ipv4_ext ext{};
  ext.val.tos = 0x48;
  ext.mask.tos = 0xff;
  rig.selects(base().add(ext, IBV_EXP_FLOW_SPEC_IPV4_EXT), frame(1, 2, 0x44), frame(1, 2, 0x48));
  ext = {};
  ext.val.proto = tcp;
  ext.mask.proto = 0xff;
  rig.selects(base().add(ext, IBV_EXP_FLOW_SPEC_IPV4_EXT), frame(1, 2),
              Builder().ipv4(1, 2, tcp).tcp(1, 2).payload(60).build());
}

TEST_CASE("rules about IPv6 headers [row:IBV_EXP_FLOW_SPEC_IPV6]") {
  FlowRig rig;
  const auto frame = [](std::uint8_t src, std::uint8_t dst, std::uint32_t label = 0,
                        std::uint8_t traffic_class = 0) {
    return Builder().ipv6(src, dst, udp, label, traffic_class).udp(1, 2).payload(60).build();
  };
  const auto base = [] { return RuleAttr().dst(frames::ours); };
  // The short specification compares nothing but the addresses.
  rig.selects(base().add(ipv6(1, 2), IBV_EXP_FLOW_SPEC_IPV6), frame(1, 3),
              frame(1, 2, 0x12345, 0x44));
  // [row:IBV_EXP_FLOW_SPEC_IPV6_EXT]
  ibv_exp_flow_spec_ipv6_ext ext{};
  ext.val.flow_label = htobe32(0x12345);
  ext.mask.flow_label = htobe32(0xfffff);
  rig.selects(base().add(ext, IBV_EXP_FLOW_SPEC_IPV6_EXT), frame(1, 2, 0x12344),
              frame(1, 2, 0x12345));
  ext = {};
  ext.val.traffic_class = 0x44;
  ext.mask.traffic_class = 0xff;
  rig.selects(base().add(ext, IBV_EXP_FLOW_SPEC_IPV6_EXT), frame(1, 2, 0, 0x48),
              frame(1, 2, 0, 0x44));
  ext = {};
  ext.val.next_hdr = tcp;
  ext.mask.next_hdr = 0xff;
  rig.selects(base().add(ext, IBV_EXP_FLOW_SPEC_IPV6_EXT), frame(1, 2),
              Builder().ipv6(1, 2, tcp).tcp(1, 2).payload(60).build());
  // Between other specifications: what follows is found behind the short one.
  rig.selects(base().add(ipv6(1, 2), IBV_EXP_FLOW_SPEC_IPV6).udp_port(53), frame(1, 2),
              Builder().ipv6(1, 2, udp).udp(9, 53).payload(60).build());
}

TEST_CASE("rules about ports [row:IBV_EXP_FLOW_SPEC_UDP] [row:IBV_EXP_FLOW_SPEC_TCP]") {
  FlowRig rig;
  const auto base = [] {
    return RuleAttr().dst(frames::ours).add(ipv4(0, 0), IBV_EXP_FLOW_SPEC_IPV4);
  };
  const auto over_udp = [](std::uint16_t src, std::uint16_t dst) {
    return Builder().ipv4(1, 2, udp).udp(src, dst).payload(60).build();
  };
  const auto over_tcp = [](std::uint16_t src, std::uint16_t dst) {
    return Builder().ipv4(1, 2, tcp).tcp(src, dst).payload(60).build();
  };
  rig.selects(base().add(ports(0, 53), IBV_EXP_FLOW_SPEC_UDP), over_udp(1, 54), over_udp(1, 53));
  rig.selects(base().add(ports(9, 53), IBV_EXP_FLOW_SPEC_UDP), over_udp(8, 53), over_udp(9, 53));
  rig.selects(base().add(ports(0, 53), IBV_EXP_FLOW_SPEC_UDP), over_tcp(1, 53), over_udp(1, 53));
  rig.selects(base().add(ports(0, 80), IBV_EXP_FLOW_SPEC_TCP), over_tcp(1, 81), over_tcp(1, 80));
  rig.selects(base().add(ports(0, 80), IBV_EXP_FLOW_SPEC_TCP), over_udp(1, 80), over_tcp(1, 80));
}

TEST_CASE("rules about what a tunnel carries [row:IBV_EXP_FLOW_SPEC_VXLAN_TUNNEL]") {
  FlowRig rig;
  const auto frame = [](std::uint32_t vni, std::uint16_t port) {
    return Builder()
        .ipv4(1, 2, udp)
        .udp(1, frames::vxlan_port)
        .vxlan(vni)
        .mac(frames::theirs, frames::ours)
        .ipv4(11, 12, udp)
        .udp(13, port)
        .payload(60)
        .build();
  };
  const auto base = [] {
    return RuleAttr()
        .dst(frames::ours)
        .add(ipv4(0, 0), IBV_EXP_FLOW_SPEC_IPV4)
        .udp_port(frames::vxlan_port);
  };
  const auto tunnel = [](std::uint32_t vni) {
    ibv_exp_flow_spec_tunnel t{};
    t.val.tunnel_id = htobe32(vni);
    t.mask.tunnel_id = htobe32(0xffffff);
    return t;
  };
  rig.selects(base().add(tunnel(77), IBV_EXP_FLOW_SPEC_VXLAN_TUNNEL), frame(78, 5), frame(77, 5));
  // [row:IBV_EXP_FLOW_SPEC_INNER]
  rig.selects(base()
                  .add(tunnel(77), IBV_EXP_FLOW_SPEC_VXLAN_TUNNEL)
                  .add(ipv4(11, 12), IBV_EXP_FLOW_SPEC_IPV4 | IBV_EXP_FLOW_SPEC_INNER)
                  .udp_port(6, IBV_EXP_FLOW_SPEC_INNER),
              frame(77, 5), frame(77, 6));
}

TEST_CASE("the rule of the best priority takes a frame") {
  FlowRig rig;
  RawQueue second(rig);
  rig.receiver.post(4);
  second.post(4);
  const Rule low = rig.receiver.rule(RuleAttr().dst(frames::ours).priority(3));
  {
    const Rule high = second.rule(RuleAttr().dst(frames::ours).udp_port(53).priority(1));
    rig.sender.send(udp_frame(53));
    second.expect(udp_frame(53));
    rig.sender.send(udp_frame(54));
    rig.receiver.expect(udp_frame(54));
  }
  rig.sender.send(udp_frame(53));
  rig.receiver.expect(udp_frame(53));
  // [row:IBV_EXP_FLOW_SPEC_ACTION_DROP]
  const Rule dropped = rig.receiver.rule(RuleAttr().dst(frames::ours).udp_port(53).drop());
  rig.sender.send(udp_frame(53));
  rig.sender.send(udp_frame(54));
  rig.receiver.expect(udp_frame(54));
  CHECK(rig.receiver.empty());
  CHECK(second.empty());
}

TEST_CASE("rules without specifications [row:IBV_EXP_FLOW_ATTR_SNIFFER]") {
  FlowRig rig;
  RawQueue sniffer(rig), rest(rig), groups(rig);
  rig.receiver.post(8);
  sniffer.post(8);
  rest.post(8);
  groups.post(8);
  const Rule normal = rig.receiver.rule(RuleAttr().dst(frames::ours));
  const Rule all = sniffer.rule(RuleAttr(IBV_EXP_FLOW_ATTR_SNIFFER));
  // [row:IBV_EXP_FLOW_ATTR_MC_DEFAULT] [row:IBV_EXP_FLOW_ATTR_ALL_DEFAULT]
  const Rule multicast = groups.rule(RuleAttr(IBV_EXP_FLOW_ATTR_MC_DEFAULT));

  rig.sender.send(udp_frame());
  rig.receiver.expect(udp_frame());
  sniffer.expect(udp_frame());
  rig.sender.send(udp_frame(1, 50, frames::group));
  groups.expect(udp_frame(1, 50, frames::group));
  sniffer.expect(udp_frame(1, 50, frames::group));

  const Rule others = rest.rule(RuleAttr(IBV_EXP_FLOW_ATTR_ALL_DEFAULT));
  rig.sender.send(udp_frame());
  rig.receiver.expect(udp_frame());
  sniffer.expect(udp_frame());
  CHECK(rest.empty());
}

TEST_CASE("rules go in any order [row:ibv_exp_destroy_flow]") {
  FlowRig rig;
  std::vector<Rule> rules;
  for (std::uint16_t port = 1; port <= 30; ++port)
    rules.push_back(rig.receiver.rule(RuleAttr().dst(frames::ours).udp_port(port)));
  CHECK(ibv_destroy_qp(rig.receiver.qp.get()) == EBUSY);
  rig.receiver.post(40);
  for (std::size_t step = 0; step < rules.size(); ++step) {
    const std::size_t victim = step * 17 % rules.size();
    const auto port = static_cast<std::uint16_t>(victim + 1);
    rig.sender.send(udp_frame(port));
    rig.receiver.expect(udp_frame(port));
    rules[victim].reset();
    rig.sender.send(udp_frame(port));
  }
  CHECK(rig.receiver.empty());
  ibv_exp_flow *const twice = rig.receiver.rule(RuleAttr().dst(frames::ours)).release();
  CHECK(ibv_exp_destroy_flow(twice) == 0);
  CHECK(ibv_exp_destroy_flow(twice) == -EINVAL);
}

TEST_CASE("the same rule twice") {
  FlowRig rig;
  RawQueue second(rig);
  rig.receiver.post(4);
  second.post(4);
  // Of two queue pairs: both get the frame.
  const Rule one = rig.receiver.rule(RuleAttr().dst(frames::ours));
  Rule two = second.rule(RuleAttr().dst(frames::ours));
  rig.sender.send(udp_frame());
  rig.receiver.expect(udp_frame());
  second.expect(udp_frame());
  two.reset();
  rig.sender.send(udp_frame());
  rig.receiver.expect(udp_frame());
}

TEST_CASE("bad rules are refused [row:ibv_exp_create_flow]") {
  FlowRig rig;
  // [row:IBV_EXP_FLOW_SPEC_IB]
  rig.refused(RuleAttr().add(ibv_exp_flow_spec_ib{}, IBV_EXP_FLOW_SPEC_IB), ENOTSUP);
  rig.refused(RuleAttr().dst(frames::ours).add(ibv_exp_flow_spec_ib{}, IBV_EXP_FLOW_SPEC_IB),
              ENOTSUP);
  // [row:IBV_EXP_FLOW_ATTR_FLAGS_ALLOW_LOOP_BACK]
  auto attr = RuleAttr().dst(frames::ours);
  attr.attr().flags = IBV_EXP_FLOW_ATTR_FLAGS_ALLOW_LOOP_BACK;
  rig.refused(attr, ENOTSUP);
  attr.attr().flags = 1u << 20;
  rig.refused(attr, EINVAL);
  attr = RuleAttr().dst(frames::ours);
  attr.attr().type = static_cast<ibv_exp_flow_attr_type>(9);
  rig.refused(attr, 524);  // the kernel's ENOTSUPP
  attr = RuleAttr().dst(frames::ours);
  attr.attr().port = 9;
  rig.refused(attr, EINVAL);
  rig.refused(RuleAttr().dst(frames::ours).priority(1000), ENOMEM);
  rig.refused(RuleAttr().add(ibv_exp_flow_spec_eth{}, 0x60), EINVAL);
  rig.refused(RuleAttr()
                  .dst(frames::ours)
                  .add(ibv_exp_flow_spec_action_drop{},
                       IBV_EXP_FLOW_SPEC_ACTION_DROP | IBV_EXP_FLOW_SPEC_INNER),
              EINVAL);
  rig.refused(RuleAttr().dst(frames::ours).tag(1u << 24), EINVAL);
  // A specification that says it is shorter than its type is not read.
  auto shorter = RuleAttr().dst(frames::ours);
  reinterpret_cast<ibv_exp_flow_spec_eth *>(&shorter.attr() + 1)->size = 8;
  rig.refused(shorter, EINVAL);
  // A connected queue pair has no rules.
  const Qp rc = rig.create_qp(IBV_QPT_RC);
  attr = RuleAttr().dst(frames::ours);
  errno = 0;
  CHECK(ibv_exp_create_flow(rc.get(), &attr.attr()) == nullptr);
  CHECK(errno == EINVAL);
  // A success leaves errno alone.
  errno = EDOM;
  const Rule rule = rig.receiver.rule(RuleAttr().dst(frames::ours));
  CHECK(errno == EDOM);
}
