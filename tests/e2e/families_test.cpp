// The interface families over raw packet queue pairs: what is sent arrives, byte
// by byte, by every function of the families.
#include <numeric>

#include "families_rig.h"

namespace {

// A sender and a receiver of frames, both under the families. The sender has a context of its
// own: a port does not give frames back to the context that they came from.
struct Frames : FamilyRig {
  FamilyRig sender;
  Cq send_cq = sender.create_cq(512), recv_cq = create_cq(512);
  Qp out = sender.create_on(IBV_QPT_RAW_PACKET, send_cq.get(), send_cq.get());
  Qp in = create_on(IBV_QPT_RAW_PACKET, recv_cq.get(), recv_cq.get());
  ibv_exp_qp_burst_family_v1 *send = burst(out.get());
  ibv_exp_qp_burst_family_v1 *receive = burst(in.get());
  ibv_exp_cq_family_v1 *sent = sender.cq_family(send_cq.get());
  ibv_exp_cq_family_v1 *received = cq_family(recv_cq.get());
  FlowRule rule;
  Buffer from{sender.pd.get(), 64 * slot}, to{pd.get(), 64 * slot};
  unsigned posted = 0, taken = 0;

  static constexpr std::size_t slot = 2048;

  Frames() {
    REQUIRE(send != nullptr);
    REQUIRE(receive != nullptr);
    REQUIRE(sent != nullptr);
    REQUIRE(received != nullptr);
    ready(out.get());
    ready(in.get());
    rule = steer(in.get());
  }

  // In RESET a queue pair has no family yet.
  ibv_exp_qp_burst_family_v1 *burst(ibv_qp *qp) {
    to_state(qp, IBV_QPS_INIT);
    return qp->context == context.get() ? FamilyRig::burst(qp) : sender.burst(qp);
  }

  void post(unsigned n) {
    std::vector<ibv_sge> list;
    for (unsigned i = 0; i < n; ++i, ++posted) list.push_back(to.piece(posted % 64 * slot, slot));
    REQUIRE(receive->recv_burst(in.get(), list.data(), n) == 0);
  }

  ibv_sge load(unsigned index, const Frame &frame) {
    std::memcpy(&from.bytes[index * slot], frame.data(), frame.size());
    return from.piece(index * slot, static_cast<std::uint32_t>(frame.size()));
  }

  // The next frame to arrive; the device pads short ones.
  void expect(Frame frame) {
    if (frame.size() < 60) frame.resize(60);
    std::uint32_t flags = 0xff, copied = 7;
    const int length = eventually(
        [&] { return received->poll_length_flags(recv_cq.get(), nullptr, &copied, &flags); });
    REQUIRE(length == static_cast<int>(frame.size()));
    CHECK(copied == 0);
    CHECK(std::memcmp(&to.bytes[taken++ % 64 * slot], frame.data(), frame.size()) == 0);
  }
};

constexpr auto signaled = IBV_EXP_QP_BURST_SIGNALED;

}  // namespace

TEST_CASE("send_pending and send_flush carry frames of all sizes") {
  Frames t;
  for (unsigned round = 0; round < 20; ++round) {
    t.post(16);
    std::vector<Frame> frames;
    for (unsigned i = 0; i < 16; ++i) {
      const std::size_t bytes = 14 + (round * 16 + i) * 97 % 1500;
      frames.push_back(make_frame(bytes, round * 16 + i));
      const ibv_sge piece = t.load(i, frames.back());
      REQUIRE(t.send->send_pending(t.out.get(), piece.addr, piece.length, piece.lkey,
                                   i == 15 ? signaled : 0) == 0);
    }
    REQUIRE(t.send->send_flush(t.out.get()) == 0);
    CHECK(poll_count(t.sent, t.send_cq.get(), 1) == 1);
    for (const Frame &frame : frames) t.expect(frame);
  }
}

TEST_CASE("nothing is sent before send_flush") {
  Frames t;
  t.post(2);
  const Frame frame = make_frame(100, 1), later = make_frame(90, 2);
  const ibv_sge piece = t.load(0, frame);
  REQUIRE(t.send->send_pending(t.out.get(), piece.addr, piece.length, piece.lkey, signaled) == 0);
  // What another queue pair sends afterwards arrives, and alone.
  const Qp other = t.sender.create_on(IBV_QPT_RAW_PACKET, t.send_cq.get(), t.send_cq.get());
  auto *send = t.burst(other.get());
  REQUIRE(send != nullptr);
  t.ready(other.get());
  ibv_sge second = t.load(1, later);
  REQUIRE(send->send_burst(other.get(), &second, 1, signaled) == 0);
  CHECK(poll_count(t.sent, t.send_cq.get(), 1) == 1);
  t.expect(later);
  CHECK(t.sent->poll_cnt(t.send_cq.get(), 1) == 0);
  REQUIRE(t.send->send_flush(t.out.get()) == 0);
  CHECK(poll_count(t.sent, t.send_cq.get(), 1) == 1);
  t.expect(frame);
}

TEST_CASE("send_burst posts one frame per element") {
  Frames t;
  for (unsigned round = 0; round < 12; ++round) {
    t.post(32);
    std::vector<Frame> frames;
    std::vector<ibv_sge> list;
    for (unsigned i = 0; i < 32; ++i) {
      frames.push_back(make_frame(60 + (round + i) * 37 % 1400, round * 32 + i));
      list.push_back(t.load(i, frames.back()));
    }
    REQUIRE(t.send->send_burst(t.out.get(), list.data(), 32, signaled) == 0);
    CHECK(poll_count(t.sent, t.send_cq.get(), 32) == 32);
    for (const Frame &frame : frames) t.expect(frame);
  }
}

TEST_CASE("send_burst posts all frames or none") {
  Frames t;
  t.post(4);
  const Frame lost = make_frame(100, 1), kept = make_frame(200, 2);
  ibv_sge list[3] = {t.load(0, lost), t.load(1, lost), t.load(2, lost)};
  list[2].length = 5;  // no Ethernet header
  CHECK(t.send->send_burst(t.out.get(), list, 3, signaled) == EINVAL);
  ibv_sge good = t.load(3, kept);
  REQUIRE(t.send->send_burst(t.out.get(), &good, 1, signaled) == 0);
  CHECK(poll_count(t.sent, t.send_cq.get(), 1) == 1);
  t.expect(kept);
  CHECK(t.sent->poll_cnt(t.send_cq.get(), 1) == 0);
}

TEST_CASE("recv_burst posts all requests or none") {
  Frames t;
  ibv_sge list[2] = {t.from.piece(0, Frames::slot), t.from.piece(Frames::slot, Frames::slot)};
  list[1].length = 0x80000001;  // more than a request can name
  CHECK(t.receive->recv_burst(t.in.get(), list, 2) == EINVAL);
  t.post(1);
  const Frame frame = make_frame(100, 1);
  ibv_sge piece = t.load(3, frame);
  REQUIRE(t.send->send_burst(t.out.get(), &piece, 1, signaled) == 0);
  CHECK(poll_count(t.sent, t.send_cq.get(), 1) == 1);
  t.expect(frame);
}

TEST_CASE("gather lists, inline data and VLAN tags, around the end of the ring") {
  Frames t;
  std::uint16_t tci = 0x6123;
  for (unsigned round = 0; round < 60; ++round) {
    t.post(4);
    const Frame frame = make_frame(100 + round * 13, round);
    const ibv_sge whole = t.load(0, frame);
    // Cut inside the addresses, behind the inline header, and an empty piece.
    ibv_sge cut[4] = {{whole.addr, 5, whole.lkey},
                      {whole.addr + 5, 0, whole.lkey},
                      {whole.addr + 5, 30, whole.lkey},
                      {whole.addr + 35, whole.length - 35, whole.lkey}};
    REQUIRE(t.send->send_pending_sg_list(t.out.get(), cut, 4, signaled) == 0);
    Frame tagged = frame;
    const std::uint8_t tag[4] = {0x81, 0x00, 0x61, 0x23};
    tagged.insert(tagged.begin() + 12, tag, tag + 4);
    REQUIRE(t.send->send_pending_vlan(t.out.get(), whole.addr, whole.length, whole.lkey, signaled,
                                      &tci) == 0);

    Frame small = make_frame(20 + round, round);
    REQUIRE(t.send->send_pending_inline(t.out.get(), small.data(),
                                        static_cast<std::uint32_t>(small.size()), signaled) == 0);
    Frame small_tagged = small;
    small_tagged.insert(small_tagged.begin() + 12, tag, tag + 4);
    REQUIRE(t.send->send_pending_inline_vlan(t.out.get(), small.data(),
                                             static_cast<std::uint32_t>(small.size()), signaled,
                                             &tci) == 0);
    const Frame kept = small;
    std::fill(small.begin(), small.end(), 0xdd);
    REQUIRE(t.send->send_flush(t.out.get()) == 0);
    CHECK(poll_count(t.sent, t.send_cq.get(), 4) == 4);
    t.expect(frame);
    t.expect(tagged);
    t.expect(kept);
    t.expect(small_tagged);
  }
}

TEST_CASE("a VLAN tag in front of a gather list") {
  Frames t;
  t.post(1);
  std::uint16_t tci = 7;
  const Frame frame = make_frame(300, 4);
  const ibv_sge whole = t.load(0, frame);
  ibv_sge cut[2] = {{whole.addr, 13, whole.lkey}, {whole.addr + 13, 287, whole.lkey}};
  REQUIRE(t.send->send_pending_sg_list_vlan(t.out.get(), cut, 2, signaled, &tci) == 0);
  REQUIRE(t.send->send_flush(t.out.get()) == 0);
  Frame tagged = frame;
  const std::uint8_t tag[4] = {0x81, 0x00, 0, 7};
  tagged.insert(tagged.begin() + 12, tag, tag + 4);
  t.expect(tagged);
}

// [row:IBV_EXP_CQ_RX_IPV4_PACKET][row:IBV_EXP_CQ_RX_IP_CSUM_OK]
// [row:IBV_EXP_CQ_RX_TCP_UDP_CSUM_OK][row:IBV_EXP_CQ_RX_UDP_PACKET][row:IBV_EXP_QP_BURST_IP_CSUM]
TEST_CASE("checksums are computed on request, and reported layer by layer") {
  Frames t;
  t.post(3);
  const Frame good = make_udp(100, 1);
  Frame blank = good;
  blank[24] = blank[25] = blank[40] = blank[41] = 0;
  Frame bad = good;
  bad.back() ^= 1;
  const ibv_sge pieces[3] = {t.load(0, blank), t.load(1, good), t.load(2, bad)};
  for (int i = 0; i < 3; ++i)
    REQUIRE(t.send->send_pending(t.out.get(), pieces[i].addr, pieces[i].length, pieces[i].lkey,
                                 i == 0 ? IBV_EXP_QP_BURST_IP_CSUM : 0) == 0);
  REQUIRE(t.send->send_flush(t.out.get()) == 0);
  const std::uint32_t udp4 = IBV_EXP_CQ_RX_IPV4_PACKET | IBV_EXP_CQ_RX_UDP_PACKET;
  const std::uint32_t all_good = udp4 | IBV_EXP_CQ_RX_IP_CSUM_OK | IBV_EXP_CQ_RX_TCP_UDP_CSUM_OK;
  for (int i = 0; i < 3; ++i) {
    std::uint32_t flags = 0, copied = 0;
    REQUIRE(eventually([&] {
              return t.received->poll_length_flags(t.recv_cq.get(), nullptr, &copied, &flags);
            }) == static_cast<int>(good.size()));
    CHECK(flags == (i < 2 ? all_good : udp4 | IBV_EXP_CQ_RX_IP_CSUM_OK));
    CHECK(std::memcmp(&t.to.bytes[static_cast<std::size_t>(i) * Frames::slot],
                      i < 2 ? good.data() : bad.data(), good.size()) == 0);
  }
}

TEST_CASE("a full queue says so and keeps what it has") {
  Frames t;
  // One block per frame: as many as the queue has, which may be more than asked. They go to a MAC
  // address without a receiver, so that no receive completes.
  const Frame frame = make_frame(64, 9, 7);
  const ibv_sge piece = t.load(0, frame);
  unsigned n = 0;
  int error = 0;
  while ((error = t.send->send_pending(t.out.get(), piece.addr, piece.length, piece.lkey,
                                       signaled)) == 0 &&
         n < 100'000)
    ++n;
  CHECK(error == ENOMEM);
  CHECK(n >= 64);
  Frame more = frame;
  CHECK(t.send->send_pending_inline(t.out.get(), more.data(),
                                    static_cast<std::uint32_t>(more.size()), 0) == ENOMEM);
  REQUIRE(t.send->send_flush(t.out.get()) == 0);
  CHECK(poll_count(t.sent, t.send_cq.get(), static_cast<int>(n)) == static_cast<int>(n));
  CHECK(t.send->send_pending(t.out.get(), piece.addr, piece.length, piece.lkey, signaled) == 0);
  REQUIRE(t.send->send_flush(t.out.get()) == 0);
  CHECK(poll_count(t.sent, t.send_cq.get(), 1) == 1);

  std::vector<ibv_sge> list(65, t.to.piece(0, 100));
  CHECK(t.receive->recv_burst(t.in.get(), list.data(), 65) == ENOMEM);
  CHECK(t.receive->recv_burst(t.in.get(), list.data(), 64) == 0);
  CHECK(t.receive->recv_burst(t.in.get(), list.data(), 1) == ENOMEM);
}

TEST_CASE("receives whose completions the program reads itself are posted again and again") {
  Frames t;
  ByHand completions(t.recv_cq.get());
  t.post(64);
  ibv_sge more = t.to.piece(0, Frames::slot);
  for (unsigned i = 0; i < 300; ++i) {
    REQUIRE(t.receive->recv_burst(t.in.get(), &more, 1) == ENOMEM);
    const Frame frame = make_frame(60 + i, i);
    const ibv_sge piece = t.load(i % 64, frame);
    REQUIRE(t.send->send_pending(t.out.get(), piece.addr, piece.length, piece.lkey, signaled) == 0);
    REQUIRE(t.send->send_flush(t.out.get()) == 0);
    REQUIRE(poll_count(t.sent, t.send_cq.get(), 1) == 1);
    CHECK(be32toh(completions.next().byte_cnt) == frame.size());
    REQUIRE(std::memcmp(&t.to.bytes[i % 64 * Frames::slot], frame.data(), frame.size()) == 0);
    t.post(1);
  }
}

TEST_CASE("flags and lengths that cannot be served are refused") {
  Frames t;
  const Frame frame = make_frame(64, 9);
  const ibv_sge piece = t.load(0, frame);
  const auto pending = [&](std::uint32_t length, std::uint32_t flags) {
    return t.send->send_pending(t.out.get(), piece.addr, length, piece.lkey, flags);
  };
  CHECK(pending(64, IBV_EXP_QP_BURST_TUNNEL) == ENOTSUP);
  CHECK(pending(64, 1u << 9) == EINVAL);
  CHECK(pending(0, 0) == EINVAL);
  CHECK(pending(13, 0) == EINVAL);
  CHECK(pending(0x80000020u, 0) == EINVAL);
  std::vector<std::uint8_t> large(4096);
  CHECK(t.send->send_pending_inline(t.out.get(), large.data(), 4096, 0) == ENOMEM);
  std::vector<ibv_sge> list(64, piece);
  CHECK(t.send->send_pending_sg_list(t.out.get(), list.data(), 64, 0) == EINVAL);
  CHECK(t.send->send_burst(t.out.get(), list.data(), 2, IBV_EXP_QP_BURST_TUNNEL) == ENOTSUP);
  REQUIRE(t.send->send_flush(t.out.get()) == 0);
  // Nothing of it was sent: the first frame to arrive, and the only completion, is of a later one.
  t.post(1);
  ibv_sge last = t.load(0, frame);
  REQUIRE(t.send->send_burst(t.out.get(), &last, 1, signaled) == 0);
  CHECK(poll_count(t.sent, t.send_cq.get(), 1) == 1);
  t.expect(frame);
  CHECK(t.sent->poll_cnt(t.send_cq.get(), 1) == 0);
}

// [row:IBV_EXP_QUERY_INTF_FLAG_ENABLE_CHECKS]
TEST_CASE("checked functions look at states and lists") {
  FamilyRig rig;
  const Qp qp = rig.create_on(IBV_QPT_RC, rig.cq.get(), rig.cq.get());
  REQUIRE(qp);
  to_init(qp.get());
  auto *checked = rig.FamilyRig::burst(qp.get(), IBV_EXP_QUERY_INTF_FLAG_ENABLE_CHECKS);
  REQUIRE(checked != nullptr);
  Buffer buffer(rig.pd.get(), 256);
  ibv_sge piece = buffer.piece(0, 64);
  CHECK(checked->send_pending(qp.get(), piece.addr, piece.length, piece.lkey, signaled) == EINVAL);
  CHECK(checked->send_burst(qp.get(), &piece, 1, signaled) == EINVAL);
  CHECK(checked->recv_burst(qp.get(), nullptr, 1) == EINVAL);
  CHECK(checked->recv_burst(qp.get(), &piece, 1) == 0);
  rig.connect(qp.get(), qp->qp_num);
  CHECK(checked->send_burst(qp.get(), nullptr, 1, signaled) == EINVAL);
  CHECK(checked->send_pending_sg_list(qp.get(), nullptr, 1, signaled) == EINVAL);
  CHECK(checked->send_pending_inline(qp.get(), nullptr, 8, signaled) == EINVAL);
  CHECK(checked->send_burst(qp.get(), &piece, 1, signaled) == 0);
}

TEST_CASE("VLAN tags are for frames") {
  FamilyRig rig;
  const Qp qp = rig.create_on(IBV_QPT_RC, rig.cq.get(), rig.cq.get());
  REQUIRE(qp);
  rig.connect(qp.get(), qp->qp_num);
  auto *burst = rig.burst(qp.get());
  REQUIRE(burst != nullptr);
  Buffer buffer(rig.pd.get(), 256);
  ibv_sge piece = buffer.piece(0, 100);
  std::uint16_t tci = 7;
  CHECK(burst->send_pending_vlan(qp.get(), piece.addr, piece.length, piece.lkey, signaled, &tci) ==
        EINVAL);
  CHECK(burst->send_pending_inline_vlan(qp.get(), buffer.bytes.data(), 20, signaled, &tci) ==
        EINVAL);
  CHECK(burst->send_pending_sg_list_vlan(qp.get(), &piece, 1, signaled, &tci) == EINVAL);
  REQUIRE(burst->send_flush(qp.get()) == 0);
  auto *completed = rig.cq_family(rig.cq.get());
  REQUIRE(completed != nullptr);
  CHECK(completed->poll_cnt(rig.cq.get(), 1) == 0);
}

// A chain that does not fit is undone: what was pending before it is sent as it was.
TEST_CASE("a burst that does not fit leaves what is pending") {
  Frames t;
  t.post(2);
  const Frame first = make_frame(100, 1), second = make_frame(200, 2);
  const ibv_sge piece = t.load(0, first);
  REQUIRE(t.send->send_pending(t.out.get(), piece.addr, piece.length, piece.lkey, signaled) == 0);
  std::vector<ibv_sge> many(4096, t.load(1, second));
  CHECK(t.send->send_burst(t.out.get(), many.data(), static_cast<std::uint32_t>(many.size()),
                           signaled) == ENOMEM);
  ibv_sge last = t.load(2, second);
  REQUIRE(t.send->send_burst(t.out.get(), &last, 1, signaled) == 0);
  REQUIRE(t.send->send_flush(t.out.get()) == 0);
  CHECK(poll_count(t.sent, t.send_cq.get(), 2) == 2);
  t.expect(first);
  t.expect(second);
  // As many as ever.
  unsigned n = 0;
  while (n < 100'000 &&
         t.send->send_pending(t.out.get(), piece.addr, piece.length, piece.lkey, signaled) == 0)
    ++n;
  CHECK(n >= 64);
}

// [row:IBV_EXP_CQ_RX_CVLAN_STRIPPED_V1][row:IBV_EXP_CQ_RX_WITH_TIMESTAMP]
TEST_CASE("timestamps, VLAN tags and single completions of the CQ family") {
  Frames t;
  t.post(4);
  const Frame frame = make_frame(80, 1);
  const ibv_sge piece = t.load(0, frame);
  for (int i = 0; i < 4; ++i) {
    REQUIRE(t.send->send_pending(t.out.get(), piece.addr, piece.length, piece.lkey, 0) == 0);
    REQUIRE(t.send->send_flush(t.out.get()) == 0);
  }
  std::uint32_t flags = 0;
  std::uint64_t first = 0, second = 0;
  std::uint16_t tci = 0;
  REQUIRE(eventually([&] {
            return t.received->poll_length_flags_ts(t.recv_cq.get(), nullptr, nullptr, &flags,
                                                    &first);
          }) == 80);
  CHECK((flags & IBV_EXP_CQ_RX_WITH_TIMESTAMP) != 0);
  REQUIRE(eventually([&] {
            return t.received->poll_length_flags_cvlan_ts(t.recv_cq.get(), nullptr, nullptr, &flags,
                                                          &tci, &second);
          }) == 80);
  CHECK(second >= first);
  CHECK((flags & IBV_EXP_CQ_RX_CVLAN_STRIPPED_V1) == 0);
  flags = 0xff;
  REQUIRE(eventually([&] {
            return t.received->poll_length_flags_cvlan(t.recv_cq.get(), nullptr, nullptr, &flags,
                                                       &tci);
          }) == 80);
  CHECK((flags & (IBV_EXP_CQ_RX_CVLAN_STRIPPED_V1 | IBV_EXP_CQ_RX_WITH_TIMESTAMP)) == 0);
  REQUIRE(eventually([&] { return t.received->poll_length(t.recv_cq.get(), nullptr, nullptr); }) ==
          80);
  CHECK(t.received->poll_length(t.recv_cq.get(), nullptr, nullptr) == 0);
  // Not for sends, and not taken by it.
  REQUIRE(t.send->send_pending(t.out.get(), piece.addr, piece.length, piece.lkey, signaled) == 0);
  REQUIRE(t.send->send_flush(t.out.get()) == 0);
  CHECK(eventually([&] { return t.sent->poll_length(t.send_cq.get(), nullptr, nullptr); }) == -1);
  CHECK(t.sent->poll_cnt(t.send_cq.get(), 4) == 1);
}

// Short messages come inside their completion.
TEST_CASE("the CQ family hands on data of completions") {
  constexpr std::size_t slot = 64, bytes = 20;
  FamilyRig rig;
  const Cq send_cq = rig.create_cq(64), recv_cq = rig.create_cq(64);
  // With masked atomics RC queue pairs have no inline receive.
  const auto type = switched_on("masked_atomics") ? IBV_QPT_UC : IBV_QPT_RC;
  const Qp out = rig.create_on(type, send_cq.get(), send_cq.get());
  auto attr = rig.qp_attr(type);
  attr.send_cq = attr.recv_cq = recv_cq.get();
  attr.comp_mask |= IBV_EXP_QP_INIT_ATTR_INL_RECV;
  attr.max_inl_recv = 32;
  const Qp in(ibv_exp_create_qp(rig.context.get(), &attr));
  REQUIRE(in);
  rig.connect(out.get(), in->qp_num);
  rig.connect(in.get(), out->qp_num);
  auto *const family = rig.cq_family(recv_cq.get());
  REQUIRE(family != nullptr);

  Buffer from{rig.pd.get(), 4 * slot}, to{rig.pd.get(), 4 * slot};
  std::iota(from.bytes.begin(), from.bytes.end(), std::uint8_t{1});
  const auto arrived = [&](std::size_t i, std::size_t length) {
    return std::memcmp(&to.bytes[i * slot], &from.bytes[i * slot], length) == 0;
  };
  for (std::size_t i = 0; i < 4; ++i) post_receive(in.get(), i, to.piece(i * slot, slot));
  for (std::size_t i = 0; i < 4; ++i) {
    ibv_sge piece = from.piece(i * slot, i == 3 ? slot : bytes);
    auto wr = request(i, IBV_EXP_WR_SEND, &piece);
    ibv_exp_send_wr *bad = nullptr;
    REQUIRE(ibv_exp_post_send(out.get(), &wr, &bad) == 0);
  }

  std::uint8_t here[slot] = {};
  std::uint32_t copied = 7;
  const auto poll = [&](void *into, std::uint32_t *whether) {
    return eventually([&] { return family->poll_length(recv_cq.get(), into, whether); });
  };
  REQUIRE(poll(here, &copied) == int{bytes});
  CHECK(copied == 1);
  CHECK(std::memcmp(here, from.bytes.data(), bytes) == 0);
  REQUIRE(poll(nullptr, nullptr) == int{bytes});
  CHECK(arrived(1, bytes));
  REQUIRE(eventually([&] { return family->poll_cnt(recv_cq.get(), 1); }) == 1);
  CHECK(arrived(2, bytes));
  REQUIRE(poll(here, &copied) == int{slot});
  CHECK(copied == 0);
  CHECK(arrived(3, slot));

  // The time of such a completion is in cycles of the device's clock, as that of others.
  const auto cycles = [&] {
    ibv_values_ex now{};
    now.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
    REQUIRE(ibv_query_rt_values_ex(rig.context.get(), &now) == 0);
    return static_cast<std::uint64_t>(now.raw_clock.tv_nsec);
  };
  post_receive(in.get(), 4, to.piece(0, slot));
  ibv_sge piece = from.piece(0, bytes);
  auto wr = request(4, IBV_EXP_WR_SEND, &piece);
  ibv_exp_send_wr *bad = nullptr;
  const std::uint64_t before = cycles();
  REQUIRE(ibv_exp_post_send(out.get(), &wr, &bad) == 0);
  std::uint32_t flags = 0;
  std::uint64_t stamp = 0;
  REQUIRE(eventually([&] {
            return family->poll_length_flags_ts(recv_cq.get(), here, &copied, &flags, &stamp);
          }) == int{bytes});
  CHECK(copied == 1);
  CHECK(stamp >= before);
  CHECK(stamp <= cycles());
}

TEST_CASE("create flags of rdma-core leave a queue pair its family") {
  FamilyRig rig;
  auto attr = rig.qp_attr(IBV_QPT_RAW_PACKET);
  attr.exp_create_flags = IBV_EXP_QP_CREATE_SCATTER_FCS;
  const Qp qp(ibv_exp_create_qp(rig.context.get(), &attr));
  REQUIRE(qp);
  rig.ready(qp.get());
  CHECK(rig.burst(qp.get()) != nullptr);
}

// [row:IBV_EXP_INTF_STAT_FAMILY_FLAGS_NOT_SUPPORTED][row:IBV_EXP_INTF_STAT_FLAGS_NOT_SUPPORTED]
// [row:IBV_EXP_INTF_STAT_INTF_NOT_SUPPORTED][row:IBV_EXP_INTF_STAT_INVAL_OBJ_STATE]
// [row:IBV_EXP_INTF_STAT_INVAL_PARARM]
// [row:IBV_EXP_INTF_STAT_VERSION_NOT_SUPPORTED]
TEST_CASE("what has no family is refused with its status") {
  FamilyRig t;
  ibv_exp_query_intf_params params{};
  params.intf = IBV_EXP_INTF_CQ;
  params.obj = t.cq.get();
  const auto outcome = [&](const ibv_exp_query_intf_params &asked) {
    auto copy = asked;
    ibv_exp_query_intf_status status = IBV_EXP_INTF_STAT_OK;
    errno = 0;
    void *family = ibv_exp_query_intf(t.context.get(), &copy, &status);
    CHECK(family == nullptr);
    CHECK(errno != 0);
    return status;
  };
  auto bad = params;
  bad.intf = IBV_EXP_INTF_RESERVED;
  CHECK(outcome(bad) == IBV_EXP_INTF_STAT_INTF_NOT_SUPPORTED);
  bad = params;
  bad.intf_version = 2;
  CHECK(outcome(bad) == IBV_EXP_INTF_STAT_VERSION_NOT_SUPPORTED);
  bad = params;
  bad.flags = 1 << 4;
  CHECK(outcome(bad) == IBV_EXP_INTF_STAT_FLAGS_NOT_SUPPORTED);
  bad = params;
  bad.family_flags = 1;
  CHECK(outcome(bad) == IBV_EXP_INTF_STAT_FAMILY_FLAGS_NOT_SUPPORTED);
  bad = params;
  bad.obj = nullptr;
  CHECK(outcome(bad) == IBV_EXP_INTF_STAT_INVAL_OBJ);
  Context other = open_first();
  ibv_cq *stranger = ibv_create_cq(other.get(), 8, nullptr, nullptr, 0);
  REQUIRE(stranger != nullptr);
  bad.obj = stranger;
  CHECK(outcome(bad) == IBV_EXP_INTF_STAT_INVAL_OBJ);
  REQUIRE(ibv_destroy_cq(stranger) == 0);

  // A queue pair in RESET, one of another type, and family flags of its own.
  Qp qp = t.create_qp(IBV_QPT_RC);
  bad = params;
  bad.intf = IBV_EXP_INTF_QP_BURST;
  bad.obj = qp.get();
  CHECK(outcome(bad) == IBV_EXP_INTF_STAT_INVAL_OBJ_STATE);
  bad.family_flags = IBV_EXP_QP_BURST_CREATE_DISABLE_ETH_LOOPBACK;
  CHECK(outcome(bad) == IBV_EXP_INTF_STAT_FAMILY_FLAGS_NOT_SUPPORTED);
  bad.family_flags = 0;
  Qp datagram = t.create_qp(IBV_QPT_UD);
  bad.obj = datagram.get();
  CHECK(outcome(bad) == IBV_EXP_INTF_STAT_INVAL_OBJ_STATE);
  ibv_qp_attr init{};
  init.qp_state = IBV_QPS_INIT;
  init.port_num = 1;
  REQUIRE(ibv_modify_qp(datagram.get(), &init,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
  CHECK(outcome(bad) == IBV_EXP_INTF_STAT_INVAL_PARARM);
  to_init(qp.get());
  bad.obj = qp.get();
  bad.family_flags = IBV_EXP_QP_BURST_CREATE_ENABLE_MULTI_PACKET_SEND_WR;
  ibv_exp_query_intf_status status = IBV_EXP_INTF_STAT_INVAL_OBJ;
  CHECK(ibv_exp_query_intf(t.context.get(), &bad, &status) != nullptr);
  CHECK(status == IBV_EXP_INTF_STAT_OK);

  CHECK(ibv_exp_release_intf(t.context.get(), nullptr, nullptr) == 0);
  ibv_exp_release_intf_params release{};
  CHECK(ibv_exp_release_intf(t.context.get(), nullptr, &release) == 0);
}
