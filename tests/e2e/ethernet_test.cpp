// Raw packets: frames out and in, checksums, segmentation, pacing, and what the
// device says about them.
#include "ethernet_rig.h"

namespace {

ibv_exp_device_attr caps(ibv_context *context, std::uint32_t mask) {
  ibv_exp_device_attr attr{};
  attr.comp_mask = mask;
  REQUIRE(ibv_exp_query_device(context, &attr) == 0);
  CHECK((attr.comp_mask & ~std::uint32_t{IBV_EXP_DEVICE_ATTR_CALC_CAP}) == mask);
  return attr;
}

constexpr std::uint64_t rx_ok =
    IBV_EXP_WC_RX_IP_CSUM_OK | IBV_EXP_WC_RX_TCP_UDP_CSUM_OK | IBV_EXP_WC_RX_IPV4_PACKET;
constexpr std::uint64_t rx_all = rx_ok | IBV_EXP_WC_RX_IPV6_PACKET | IBV_EXP_WC_RX_TUNNEL_PACKET |
                                 IBV_EXP_WC_RX_OUTER_IPV4_PACKET | IBV_EXP_WC_RX_OUTER_IPV6_PACKET |
                                 IBV_EXP_WC_RX_OUTER_IP_CSUM_OK |
                                 IBV_EXP_WC_RX_OUTER_TCP_UDP_CSUM_OK;

// Flags of completion queues: plain, and polled by our own parser where there is one.
std::vector<std::uint32_t> kinds_of_queue() { return {0, IBV_EXP_CQ_TIMESTAMP}; }

}  // namespace

// On both kinds of queue the completion says the same. [row:raweth_qpt]
TEST_CASE("frames go out and come in") {
  for (const std::uint32_t flags : kinds_of_queue()) {
    Rig rig;
    RawSender sender;
    RawQueue receiver(rig, 0, 0, flags);
    const Rule rule = receiver.rule(RuleAttr().dst(frames::ours));
    for (const std::size_t payload : {18u, 100u, 1400u}) {
      receiver.post();
      const auto frame = udp_frame(5000, payload);
      sender.send(frame);
      const auto wc = receiver.expect(frame);
      CHECK(wc.qp == receiver.qp.get());
      CHECK((wc.exp_wc_flags & IBV_EXP_WC_QP) != 0);
      CHECK((wc.exp_wc_flags & IBV_EXP_WC_SRQ) == 0);
      // [row:IBV_EXP_WC_RX_IP_CSUM_OK] [row:IBV_EXP_WC_RX_IPV4_PACKET]
      CHECK((wc.exp_wc_flags & rx_all) == rx_ok);
      CHECK(((wc.exp_wc_flags & IBV_EXP_WC_WITH_TIMESTAMP) != 0) == (flags != 0));
    }
  }
}

TEST_CASE("the base verb reports checksums as one") {
  Rig rig;
  RawSender sender;
  RawQueue receiver(rig);
  const Rule rule = receiver.rule(RuleAttr().dst(frames::ours));
  receiver.post(3);
  const auto flags_of = [&](const frames::Bytes &frame) {
    sender.send(frame);
    ibv_wc wc{};
    while (ibv_poll_cq(receiver.cq.get(), 1, &wc) == 0) continue;
    CHECK(wc.byte_len == frame.size());
    return wc.wc_flags;
  };
  CHECK(flags_of(udp_frame()) == IBV_WC_IP_CSUM_OK);
  auto bad = udp_frame();
  bad[bad.size() - 1] ^= 1;
  CHECK(flags_of(bad) == 0);
  CHECK(flags_of(frames::Builder().ipv6(1, 2, frames::udp).udp(1, 2).payload(50).build()) == 0);
}

TEST_CASE("checksums are reported layer by layer [row:IBV_EXP_WC_RX_TCP_UDP_CSUM_OK]", "[engine]") {
  Rig rig;
  constexpr std::uint64_t ipv4 = IBV_EXP_WC_RX_IPV4_PACKET;
  constexpr std::uint64_t both_good = IBV_EXP_WC_RX_IP_CSUM_OK | IBV_EXP_WC_RX_TCP_UDP_CSUM_OK;
  for (const std::uint32_t flags : kinds_of_queue()) {
    RawSender sender;
    RawQueue receiver(rig, 0, 0, flags);
    const Rule rule = receiver.rule(RuleAttr().dst(frames::ours));
    receiver.post(5);
    const auto flags_of = [&](const frames::Bytes &frame) {
      sender.send(frame);
      return receiver.expect(frame).exp_wc_flags & rx_all;
    };
    auto bad = udp_frame();
    bad[bad.size() - 1] ^= 1;
    CHECK(flags_of(bad) == (ipv4 | IBV_EXP_WC_RX_IP_CSUM_OK));
    bad = udp_frame();
    bad[24] ^= 1;  // of the IPv4 header
    CHECK(flags_of(bad) == (ipv4 | IBV_EXP_WC_RX_TCP_UDP_CSUM_OK));
    // [row:IBV_EXP_WC_RX_IPV6_PACKET]
    CHECK(flags_of(frames::Builder().ipv6(1, 2, frames::udp).udp(1, 2).payload(50).build()) ==
          (IBV_EXP_WC_RX_IPV6_PACKET | both_good));
    CHECK(flags_of(frames::Builder().ipv4(1, 2, frames::tcp).tcp(1, 2).payload(50).build()) ==
          rx_ok);
    // No transport header, no checksum of it.
    CHECK(flags_of(frames::Builder().ipv4(1, 2, 1).payload(50).build()) ==
          (ipv4 | IBV_EXP_WC_RX_IP_CSUM_OK));
  }
}

// The number in such a completion is the tag of the rule, not a queue pair's.
TEST_CASE("flow tags are not taken for queue pairs [row:IBV_EXP_FLOW_SPEC_ACTION_TAG]") {
  for (const std::uint32_t flags : kinds_of_queue()) {
    Rig rig;
    RawSender sender;
    RawQueue receiver(rig, 0, 0, flags);
    const Qp other = rig.create_qp(IBV_QPT_RC);
    const Rule tagged =
        receiver.rule(RuleAttr().dst(frames::ours).udp_port(6000).tag(other->qp_num));
    const Rule plain = receiver.rule(RuleAttr().dst(frames::ours).priority(1));
    receiver.post(2);
    sender.send(udp_frame(6000));
    auto wc = receiver.completions(1)[0];
    CHECK(wc.qp_num == other->qp_num);
    CHECK(wc.qp == receiver.qp.get());
    sender.send(udp_frame(5000));
    wc = receiver.completions(1)[0];
    CHECK(wc.qp_num == 0);
    CHECK(wc.qp == receiver.qp.get());
  }
}

TEST_CASE("the device fills in checksums [row:IBV_EXP_SEND_IP_CSUM]") {
  Rig rig;
  RawSender sender;
  RawQueue receiver(rig);
  const Rule rule = receiver.rule(RuleAttr().dst(frames::ours));
  receiver.post(4);
  using frames::Builder;
  for (const auto &frame : {Builder().ipv4(1, 2, frames::udp).udp(3, 4).payload(333),
                            Builder().ipv4(1, 2, frames::tcp).tcp(3, 4).payload(200),
                            Builder().vlan(5).ipv4(1, 2, frames::udp).udp(3, 4).payload(61)}) {
    sender.send(frame.raw(), IBV_EXP_SEND_IP_CSUM);
    const auto wc = receiver.expect(frame.build());
    CHECK(frames::checksums_good(receiver.at(wc.wr_id)));
    CHECK((wc.exp_wc_flags & rx_ok) == rx_ok);
  }
  // Not asked for: as it was.
  const auto frame = Builder().ipv4(1, 2, frames::udp).udp(3, 4).payload(70);
  sender.send(frame.raw());
  const auto wc = receiver.expect(frame.raw());
  CHECK(!frames::checksums_good(receiver.at(wc.wr_id)));
}

TEST_CASE("checksums of connected messages mean nothing") {
  Rig rig;
  const Qp left = rig.create_qp(IBV_QPT_RC), right = rig.create_qp(IBV_QPT_RC);
  rig.connect(left.get(), right->qp_num);
  rig.connect(right.get(), left->qp_num);
  Buffer buffer(rig.pd.get(), 256);
  post_receive(right.get(), 1, buffer.piece(128, 64));
  ibv_sge piece = buffer.piece(0, 8);
  auto first = request(1, IBV_EXP_WR_SEND, &piece);
  auto second = request(2, IBV_EXP_WR_SEND, &piece);
  second.exp_send_flags |= IBV_EXP_SEND_IP_CSUM;
  first.next = &second;
  ibv_exp_send_wr *bad = nullptr;
  post_receive(right.get(), 2, buffer.piece(64, 64));
  CHECK(ibv_exp_post_send(left.get(), &first, &bad) == 0);
  for (const auto &wc : rig.completions(4)) CHECK(wc.status == IBV_WC_SUCCESS);
}

TEST_CASE("a large send is cut into segments [row:IBV_EXP_WR_TSO]") {
  Rig rig;
  const auto reported = caps(rig.context.get(), IBV_EXP_DEVICE_ATTR_TSO_CAPS);
  CHECK(reported.tso_caps.max_tso >= 65536);
  CHECK(ibv_is_qpt_supported(reported.tso_caps.supported_qpts, IBV_QPT_RAW_PACKET));

  RawSender sender(128);
  RawQueue receiver(rig);
  const Rule rule = receiver.rule(RuleAttr().dst(frames::ours));
  for (const std::uint16_t mss : {200, 1000, 1460}) {
    frames::Bytes header =
        frames::Builder().ipv4(0x0a000001, 0x0a000002, frames::tcp).tcp(80, 4000, 77, 0x18).raw();
    REQUIRE(header.size() == 54);
    const std::size_t total = 9001;
    frames::Bytes data(total);
    for (std::size_t i = 0; i < total; ++i) data[i] = static_cast<std::uint8_t>(i * 31 + mss);
    std::copy(data.begin(), data.end(), sender.out.bytes.begin());
    const auto segments = static_cast<std::uint32_t>((total + mss - 1) / mss);
    receiver.post(segments);

    ibv_sge pieces[] = {sender.out.piece(0, 4000), sender.out.piece(4000, 5001)};
    auto wr = request(9, IBV_EXP_WR_TSO, pieces, 2);
    wr.exp_send_flags = IBV_EXP_SEND_SIGNALED | IBV_EXP_SEND_IP_CSUM;
    wr.tso.hdr = header.data();
    wr.tso.hdr_sz = static_cast<std::uint16_t>(header.size());
    wr.tso.mss = mss;
    ibv_exp_send_wr *bad = nullptr;
    REQUIRE(ibv_exp_post_send(sender.qp.get(), &wr, &bad) == 0);
    // The header was copied.
    std::fill(header.begin(), header.end(), std::uint8_t{0xee});
    const auto done = sender.completions(1)[0];
    CHECK(done.status == IBV_WC_SUCCESS);
    CHECK(done.exp_opcode == IBV_EXP_WC_TSO);  // [row:IBV_EXP_WC_TSO]
    CHECK(done.wr_id == 9);

    frames::Bytes whole(total);
    std::size_t got = 0;
    for (const auto &wc : receiver.completions(segments)) {
      const std::uint8_t *frame = receiver.at(wc.wr_id);
      const auto h = frames::headers_of(frame);
      CHECK(h.end == wc.byte_len);
      CHECK(frames::checksums_good(frame));
      const std::size_t offset = frames::load32(frame + h.l4 + 4) - 77;
      const std::size_t length = h.end - h.payload;
      REQUIRE(offset + length <= total);
      CHECK((length == mss || offset + length == total));
      std::copy_n(frame + h.payload, length, whole.begin() + static_cast<long>(offset));
      got += length;
    }
    CHECK(got == total);
    CHECK(whole == data);
  }
}

TEST_CASE("bad segmentation is refused before it begins [row:tso_post_send]") {
  Rig rig;
  RawSender sender(60), plain;
  RawQueue receiver(rig);
  const Rule rule = receiver.rule(RuleAttr().dst(frames::ours));
  receiver.post(4);
  frames::Bytes header(100);
  ibv_sge piece = sender.out.piece(0, 100);
  const auto frame = udp_frame();
  std::copy(frame.begin(), frame.end(), sender.out.bytes.begin());
  std::copy(frame.begin(), frame.end(), plain.out.bytes.begin());
  const auto refused = [&](RawQueue &queue, std::uint16_t header_size) {
    ibv_sge good = queue.out.piece(0, static_cast<std::uint32_t>(frame.size()));
    auto first = request(1, IBV_EXP_WR_SEND, &good);
    auto second = request(2, IBV_EXP_WR_TSO, &piece);
    first.next = &second;
    second.tso.hdr = header.data();
    second.tso.hdr_sz = header_size;
    second.tso.mss = 50;
    ibv_exp_send_wr *bad = nullptr;
    CHECK(ibv_exp_post_send(queue.qp.get(), &first, &bad) == EINVAL);
    CHECK(bad == &second);
    CHECK(queue.completions(1)[0].wr_id == 1);
    receiver.expect(frame);
  };
  refused(sender, 13);
  refused(sender, 61);
  refused(plain, 54);  // created without a header size

  // [row:tso_create_qp_max_tso_header]
  auto attr = rig.qp_attr(IBV_QPT_RC);
  attr.comp_mask |= IBV_EXP_QP_INIT_ATTR_MAX_TSO_HEADER;
  attr.max_tso_header = 60;
  errno = 0;
  CHECK(ibv_exp_create_qp(rig.context.get(), &attr) == nullptr);
  CHECK(errno == EINVAL);
  attr.max_tso_header = 0;
  CHECK(Qp(ibv_exp_create_qp(rig.context.get(), &attr)) != nullptr);
}

TEST_CASE("frames fill receives that were posted in INIT") {
  Rig rig;
  RawSender sender;
  RawQueue receiver(rig);
  receiver.to(IBV_QPS_RESET);
  receiver.to(IBV_QPS_INIT, IBV_EXP_QP_PORT);
  receiver.post(2);
  receiver.to(IBV_QPS_RTR);
  const Rule rule = receiver.rule(RuleAttr().dst(frames::ours));
  const auto frame = udp_frame();
  for (int i = 0; i < 2; ++i) {
    sender.send(frame);
    receiver.expect(frame);
  }
}

TEST_CASE("the check sequence is delivered on request [row:IBV_EXP_QP_CREATE_SCATTER_FCS]") {
  Rig rig;
  const auto reported = caps(rig.context.get(), IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS);
  CHECK((reported.exp_device_cap_flags & IBV_EXP_DEVICE_SCATTER_FCS) != 0);
  RawSender sender;
  RawQueue receiver(rig, IBV_EXP_QP_CREATE_SCATTER_FCS);
  const Rule rule = receiver.rule(RuleAttr().dst(frames::ours));
  receiver.post();
  const auto frame = udp_frame();
  sender.send(frame);
  const auto wc = receiver.completions(1)[0];
  REQUIRE(wc.byte_len == frame.size() + 4);
  std::uint32_t crc = 0xffffffff;
  for (const std::uint8_t byte : frame) {
    crc ^= byte;
    for (int i = 0; i < 8; ++i) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xedb88320 : 0);
  }
  crc = ~crc;
  std::uint32_t found;
  std::memcpy(&found, receiver.at(wc.wr_id) + frame.size(), 4);
  CHECK(found == crc);
}

TEST_CASE("padding of writes is accepted [row:IBV_EXP_QP_CREATE_RX_END_PADDING]") {
  Rig rig;
  const auto reported = caps(rig.context.get(), IBV_EXP_DEVICE_ATTR_RX_PAD_END_ALIGN);
  auto attr = rig.qp_attr(IBV_QPT_RAW_PACKET);
  attr.exp_create_flags = IBV_EXP_QP_CREATE_RX_END_PADDING;
  errno = 0;
  Qp qp(ibv_exp_create_qp(rig.context.get(), &attr));
  if (reported.rx_pad_end_addr_align != 0) CHECK(qp);
  else CHECK(errno == ENOTSUP);
}

TEST_CASE("sending is paced [row:IBV_EXP_QP_RATE_LIMIT]", "[rdma-core-29]") {
  Rig rig;
  const auto reported = caps(rig.context.get(), IBV_EXP_DEVICE_ATTR_PACKET_PACING_CAPS);
  const auto &pacing = reported.packet_pacing_caps;
  CHECK(pacing.qp_rate_limit_min > 0);
  CHECK(pacing.qp_rate_limit_max > pacing.qp_rate_limit_min);
  CHECK(ibv_is_qpt_supported(pacing.supported_qpts, IBV_QPT_RAW_PACKET));
  CHECK(pacing.cap_flags == IBV_EXP_QP_SUPPORT_BURST);  // [row:IBV_EXP_QP_SUPPORT_BURST]

  RawSender sender;
  RawQueue receiver(rig);
  const Rule rule = receiver.rule(RuleAttr().dst(frames::ours));
  const auto limit = [&](std::uint32_t rate, std::uint32_t burst = 0) {
    ibv_exp_qp_attr attr{};
    attr.rate_limit = rate;
    attr.burst_info.max_burst_sz = burst;
    attr.burst_info.typical_pkt_sz = 100;
    if (burst != 0) attr.comp_mask = IBV_EXP_QP_ATTR_BURST_INFO;
    return ibv_exp_modify_qp(sender.qp.get(), &attr, IBV_EXP_QP_RATE_LIMIT);
  };
  CHECK(limit(pacing.qp_rate_limit_max + 1) == EINVAL);
  CHECK(limit(0, 1000) == EINVAL);
  ibv_exp_qp_attr unasked{};
  unasked.rate_limit = 10'000;
  unasked.burst_info = {1000, 100};
  unasked.comp_mask = IBV_EXP_QP_ATTR_BURST_INFO;
  CHECK(ibv_exp_modify_qp(sender.qp.get(), &unasked, 0) == EINVAL);

  // 10 Mbit/s in bursts of two frames: 20 frames of 1250 bytes take 18 ms at least.
  // [row:IBV_EXP_QP_ATTR_BURST_INFO]
  REQUIRE(limit(10'000, 2500) == 0);
  receiver.post(20);
  const auto frame = udp_frame(5000, 1250 - 42);
  REQUIRE(frame.size() == 1250);
  timespec before, after;
  clock_gettime(CLOCK_MONOTONIC, &before);
  for (int i = 0; i < 20; ++i) sender.send(frame);
  receiver.completions(20);
  clock_gettime(CLOCK_MONOTONIC, &after);
  const double ms = static_cast<double>(after.tv_sec - before.tv_sec) * 1e3 +
                    static_cast<double>(after.tv_nsec - before.tv_nsec) / 1e6;
  CHECK(ms > 16);
  CHECK(limit(20'000) == 0);
  CHECK(limit(0) == 0);
}

TEST_CASE("queue pairs go while frames are on their way") {
  Rig rig;
  RawSender sender;
  for (int round = 0; round < 20; ++round) {
    RawQueue receiver(rig);
    Rule rule = receiver.rule(RuleAttr().dst(frames::ours));
    receiver.post(8);
    const auto frame = udp_frame();
    std::copy(frame.begin(), frame.end(), sender.out.bytes.begin());
    ibv_sge piece = sender.out.piece(0, static_cast<std::uint32_t>(frame.size()));
    ibv_exp_send_wr wrs[8], *bad = nullptr;
    for (int i = 0; i < 8; ++i) {
      wrs[i] = request(static_cast<std::uint64_t>(i), IBV_EXP_WR_SEND, &piece);
      wrs[i].next = i < 7 ? &wrs[i + 1] : nullptr;
    }
    REQUIRE(ibv_exp_post_send(sender.qp.get(), wrs, &bad) == 0);
    if (round % 2 == 0) sender.completions(8);
    // The rule holds the queue pair.
    CHECK(ibv_destroy_qp(receiver.qp.get()) == EBUSY);
    rule.reset();
    receiver.qp.reset();
    if (round % 2 != 0) sender.completions(8);
  }
}

TEST_CASE("what the device says about frames is so") {
  Rig rig;
  ibv_device_attr_ex modern{};
  REQUIRE(ibv_query_device_ex(rig.context.get(), nullptr, &modern) == 0);
  const auto reported = caps(rig.context.get(), IBV_EXP_DEVICE_ATTR_EXP_CAP_FLAGS);
  // [row:IBV_EXP_DEVICE_RX_CSUM_IP_PKT] [row:IBV_EXP_DEVICE_RX_CSUM_TCP_UDP_PKT]
  CHECK((modern.raw_packet_caps & IBV_RAW_PACKET_CAP_IP_CSUM) != 0);
  constexpr std::uint64_t expected = IBV_EXP_DEVICE_RX_CSUM_IP_PKT |
                                     IBV_EXP_DEVICE_RX_CSUM_TCP_UDP_PKT |
                                     IBV_EXP_DEVICE_MANAGED_FLOW_STEERING;
  CHECK((reported.exp_device_cap_flags & expected) == expected);
  CHECK((reported.exp_device_cap_flags &
         (IBV_EXP_DEVICE_RX_TCP_UDP_PKT_TYPE | IBV_EXP_DEVICE_VXLAN_SUPPORT)) == 0);
  CHECK((modern.orig_attr.device_cap_flags & IBV_DEVICE_RAW_IP_CSUM) != 0);
}
